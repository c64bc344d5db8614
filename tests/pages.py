"""The pages of this repository, their fenced blocks, links and sections."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(
    r"(?:<!-- check: (?P<check>[^\n]+?) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)```",
    re.DOTALL,
)


def read(name: str) -> str:
    """The text of a file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def prose(text: str) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, language, the comment before it, text and line."""

    page: str
    language: str
    check: str
    text: str
    line: int


@dataclass(frozen=True)
class Page:
    """A Markdown file, by its name from the top of the repository."""

    name: str

    def __str__(self) -> str:
        return self.name

    @cached_property
    def text(self) -> str:
        return read(self.name)

    @cached_property
    def prose(self) -> str:
        return prose(self.text)

    @cached_property
    def blocks(self) -> list[Block]:
        return list(_blocks(self.name, self.text))

    @cached_property
    def links(self) -> list[str]:
        """What links lead to in this repository."""
        return re.findall(r"\]\((?!https?:)([^)]+)\)", self.prose)


def _blocks(page: str, text: str) -> Iterator[Block]:
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("text")) + 1
        yield Block(page, match["language"], match["check"] or "", match["text"], line)


def sections(text: str) -> set[str]:
    """What links call the headings of a page, as GitHub spells them."""
    headings = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


PAGES = [
    Page(path.relative_to(ROOT).as_posix())
    for folder in ("*.md", "docs/*.md", "benchmarks/**/*.md")
    for path in sorted(ROOT.glob(folder))
]
