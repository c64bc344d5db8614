"""The text of an epilogue as Python's own parser reads it, and its places.

What the grammar can never hold is refused first; what the names mean is for the parser.
"""

import ast
import re

from gemmgen.base.errors import quoted

MAX_CHARACTERS = 4096


class Mistake(Exception):
    """A message and the offset in the text that it is about."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset
        self.message = message


class Source:
    """A text, its statements, and where the parts of them stand."""

    def __init__(self, text: str) -> None:
        self.text = text
        # A scalar's empty index is no Python: it is parsed as a call without arguments.
        self.readable = re.sub(r"\[( *)\]", r"(\1)", text)
        self.lines = [0]
        for line in text.split("\n"):
            self.lines.append(self.lines[-1] + len(line) + 1)

    def mistake(self, node: ast.AST, message: str) -> Mistake:
        """A mistake at the start of a node."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        return Mistake(self.lines[line - 1] + column, message)

    def of(self, node: ast.AST) -> str:
        """A node as it was written."""
        return ast.get_source_segment(self.text, node) or ""

    def statements(self) -> list[ast.stmt]:
        """The statements as Python parses them; indentation of the block is ignored."""
        self._screen()
        try:
            body = ast.parse(self.readable).body
        except SyntaxError as error:
            line = min(error.lineno or 1, len(self.lines) - 1)
            offset = self.lines[line - 1] + max(error.offset or 1, 1) - 1
            raise Mistake(offset, f"epilogue is no expression: {error.msg}") from None
        except (MemoryError, RecursionError):
            raise Mistake(0, "epilogue nests too deep to be read") from None
        if not body:
            raise Mistake(0, "epilogue is empty; leave it out for the default")
        return body

    def _screen(self) -> None:
        if len(self.text) > MAX_CHARACTERS:
            raise Mistake(
                0,
                f"epilogue has {len(self.text)} characters; at most {MAX_CHARACTERS}",
            )
        for offset, character in enumerate(self.text):
            if character != "\n" and not " " <= character <= "~":
                raise Mistake(
                    offset, f"epilogue holds the character {character!a}; plain "
                    "ASCII only"
                )  # fmt: skip
            if character in "#\\'\"`;@":
                raise Mistake(offset, f"epilogue cannot hold {quoted(character)}")

    def is_scalar(self, node: ast.Call) -> bool:
        """Whether a call stands for an empty index, as in `alpha[]`."""
        line, column = node.func.end_lineno or 1, node.func.end_col_offset or 0
        return self.text[self.lines[line - 1] + column :].lstrip(" ").startswith("[")

    def operands(self, statement: ast.stmt) -> set[str]:
        """The names that have an index."""
        parts = list(ast.walk(statement))
        indexed = [part.value for part in parts if isinstance(part, ast.Subscript)]
        calls = [part for part in parts if isinstance(part, ast.Call)]
        indexed += [call.func for call in calls if self.is_scalar(call)]
        return {one.id for one in indexed if isinstance(one, ast.Name)}
