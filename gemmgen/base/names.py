"""Lists of names as people write them: what belongs together on a line."""

import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 88
"""Columns of a line of what is generated."""
_JOINT = "\N{NO-BREAK SPACE}"


def line(names: Sequence[str], indent: int) -> str:
    """The names with a comma after each, in as many lines as it takes.

    What stands in one name stays in one line: a type, or several that are a pair.
    """
    margin = " " * indent
    text = textwrap.fill(
        " ".join(f"{name.replace(' ', _JOINT)}," for name in names),
        WIDTH,
        initial_indent=margin,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return text.replace(_JOINT, " ")


def grouped(groups: Iterable[Sequence[str]], indent: int = 0) -> str:
    """The names in parentheses, each group from a line of its own."""
    lines = [line(group, indent + 4) for group in groups if group]
    return "\n".join(["(", *lines, " " * indent + ")"])


def packed(name: str, names: Sequence[str], indent: int) -> str:
    """`name = (a, b)`, in as many lines as it takes."""
    short = f"{name} = ({', '.join(names)})"
    if indent + len(short) <= WIDTH:
        return short
    return f"{name} = {grouped([names], indent)}  # fmt: skip"
