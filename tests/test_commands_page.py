"""docs/commands.md says what `-h` says: both come from the same parsers."""

import argparse
import re
import textwrap
from pathlib import Path

import pytest

from gemmgen.cli.arguments import parser

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "commands.md"
PART = re.compile(
    r"(?P<first><!-- check: help (?P<name>\w+) -->\n).*?(?=<!-- end -->\n)", re.DOTALL
)


def commands() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command, in the order of `gemmgen -h`."""
    (choice,) = [
        action
        for action in parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    ]
    return choice.choices


def forms(action: argparse.Action) -> str:
    """An argument as it is typed: its spellings, then what follows them."""
    if action.choices:
        value = "{" + ",".join(action.choices) + "}"
    else:
        value = str(action.metavar or action.dest.upper())
    if not action.option_strings:
        return {"+": f"`{value}...`", "?": f"`[{value}]`"}.get(
            str(action.nargs), f"`{value}`"
        )
    after = "" if action.nargs == 0 else f" {value}"
    return ", ".join(f"`{spelling}{after}`" for spelling in action.option_strings)


def told(command: argparse.ArgumentParser) -> str:
    """What `-h` says, as Markdown: no line that depends on a terminal's width."""
    actions = [one for one in command._actions if one.dest != "help"]
    table = [f"| {forms(one)} | {one.help} |" for one in actions]
    head = ["", "| argument | means |", "| --- | --- |"] if table else []
    assert all(one.help for one in actions)
    text = "\n".join([*textwrap.wrap(str(command.description), 95), *head, *table])
    return text.replace("<", "\\<") + "\n\n"  # a tag of HTML otherwise


def test_the_page_says_what_help_says(request: pytest.FixtureRequest) -> None:
    """`--update-golden` copies it anew."""
    text = PAGE.read_text(encoding="utf-8")
    known = commands()
    assert {match["name"] for match in PART.finditer(text)} == known.keys()
    made = PART.sub(lambda match: match["first"] + told(known[match["name"]]), text)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(made, encoding="utf-8")
    else:
        assert text == made


def test_what_excludes_each_other_is_said() -> None:
    """Usage lines are not copied, so the page has to name such groups."""
    text = PAGE.read_text(encoding="utf-8")
    for name, command in commands().items():
        for group in command._mutually_exclusive_groups:
            names = [f"`{one.option_strings[0]}`" for one in group._group_actions]
            section = text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
            sentence = f"{', '.join(names[:-1])} and {names[-1]} exclude each other."
            assert sentence in section
