"""Reads what a sanitizer and the process under it wrote, in one stream.

Nothing here starts a process.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gemmgen.verification.sanitize.child import MARK

FOUND = 86
"""The exit code that the tools are told to use when they report an error."""

_PREFIX = re.compile(r"^=========(?: (.*))?$")
_SUMMARY = re.compile(
    r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard"
)  # fmt: skip
_NO_FINDING = re.compile(
    r"COMPUTE-SANITIZER|LEAK SUMMARY|Target application|"
    r"Error: process didn't terminate|Warning: (?!Race)"
)
Files = Mapping[str, Sequence[str]]
"""The lines of files, by their names."""
_ACCESS = re.compile(r"access at \S+ in ([^\s:]+):(\d+)")
_DISPATCH = (
    "def ", "if NUM_WGS == ", "gl.warp_specialize(", "specialize(", "run_roles(",
    "consume(",
)  # fmt: skip
_BACKTRACE = re.compile(r"Saved host backtrace|Host Frame")
_MOST_LINES = 12


@dataclass
class Record:
    """What a stream tells of one kernel: findings, calls, and how it went on.

    `set_aside` counts the findings that `of_dispatch` knows.
    """

    kernel: str
    findings: list[str] = field(default_factory=list)
    set_aside: int = 0
    case: str = ""
    story: str = ""
    calls: int | None = None


@dataclass
class Reading:
    """A whole stream: a record a kernel that was begun, and the tool's own count."""

    records: dict[str, Record]
    count: int
    said: list[str]


def read(text: str, sources: Mapping[str, Files]) -> Reading:
    """Sort a stream by kernel; `sources` are files with parts for warps, by kernel.

    A finding is the kernel's that it names; the tool may write later than the process,
    so its place counts only if it names none.
    """
    records: dict[str, Record] = {}
    current, count, said = "", 0, []
    by_length = sorted(sources, key=len, reverse=True)
    for kind, part in _parts(text):
        if kind == "mark":
            current = _note(records, part)
        elif kind == "said":
            said.append(part)
        elif match := _SUMMARY.search(part):
            count += int(match[1] or match[2])
        elif not _NO_FINDING.match(part):
            named = next((k for k in by_length if f"{k}_kernel" in part), current)
            record = records.setdefault(named, Record(named))
            if of_dispatch(part, sources.get(named, {})):
                record.set_aside += 1
            else:
                record.findings.append(_shown(part, record.case))
    return Reading(records, count, said)


def of_dispatch(finding: str, files: Files) -> bool:
    """Whether a finding is racecheck's of how Triton sends warps to their functions.

    Triton keeps a byte for each warp of a specialized kernel in shared memory. The
    first warps write there which function each other is to run; all meet at barrier 1
    before it is read and again after, which tests/test_sanitize.py holds against the
    machine code. racecheck reports it all the same (Triton 3.6, H200). Both accesses
    have the lines of a `def`, of a call of roles, `specialize` down to
    `gl.warp_specialize`, or of the choice of one at compile time, where the text itself
    accesses nothing.
    """
    lines = [(Path(name).name, int(line)) for name, line in _ACCESS.findall(finding)]
    places = [
        files[name][line - 1].lstrip()
        for name, line in lines
        if line <= len(files.get(name, ()))
    ]
    known = len(places) == len(lines) == finding.count("access at ") > 1
    return known and all(place.startswith(_DISPATCH) for place in places)


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Marks, the tool's blocks, which end at a bare prefix, and all other lines."""
    block: list[str] = []
    for line in text.splitlines():
        match = _PREFIX.match(line)
        if match is None or not (match[1] or "").strip():
            yield from _block(block)
            block = []
        if match is None and line.startswith(MARK):
            yield "mark", line.removeprefix(MARK)
        elif match is None:
            yield "said", line
        elif (match[1] or "").strip():
            content = match[1]
            if block and not content.startswith((" ", "\t")):
                yield from _block(block)
                block = []
            block.append(content)
    yield from _block(block)


def _block(lines: list[str]) -> Iterator[tuple[str, str]]:
    if lines:
        yield "tool", "\n".join(lines)


def _note(records: dict[str, Record], text: str) -> str:
    """Note one line of the process; the kernel it is about."""
    values = json.loads(text)
    kernel = str(values["kernel"])
    record = records.setdefault(kernel, Record(kernel))
    match values["event"]:
        case "case":
            record.case = values["case"]
        case "finding":
            record.findings.append(f"{values['finding']}\n{record.case}")
        case "error":
            record.story = values["story"]
        case "end":
            record.calls = values["calls"]
    return kernel


def _shown(block: str, case: str) -> str:
    """A finding without its host backtrace, with the case under which it came."""
    lines = [" ".join(line.split()) for line in block.splitlines()]
    end = next((i for i, line in enumerate(lines) if _BACKTRACE.search(line)), None)
    return "\n".join([*lines[:end][:_MOST_LINES], *([case] if case else [])])
