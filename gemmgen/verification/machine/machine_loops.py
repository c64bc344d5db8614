"""Finds the K loop in machine code, and what of it goes by way of the stack.

Reads what `cuobjdump -sass` prints; it must not know what was planned.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

_INSTRUCTION = re.compile(
    r"/\*(?P<address>[0-9a-f]{4,})\*/\s+(?P<guard>@!?U?P\w+\s+)?"
    r"(?P<name>[A-Z][A-Z0-9_.]*)(?P<operands>[^;&?]*)"
)
_MATRIX = re.compile(r"(UTC)?[A-Z]*MMA\b")
_MULTIPLY_ADD = re.compile(r"[FD]FMA2?\b")
_RESULT = re.compile(r"STG\b|UTMASTG\b|UTMAREDG\b")
_STACK = re.compile(r"(LDL|STL)\b")
_ENDS = ("EXIT", "RET", "KILL")
_JUMPS = ("BRA", "JMP", "CALL")


@dataclass(frozen=True)
class Instruction:
    """One of a kernel: with a guard, it may be passed over."""

    address: int
    guarded: bool
    name: str
    operands: str


Block = tuple[Instruction, ...]
"""Instructions that run one after the other, the last of which may jump."""
Graph = dict[int, tuple[int, ...]]
"""The blocks that may follow each, by their numbers."""


@dataclass(frozen=True)
class Spills:
    """Loads and stores of the stack: how many stand in the code, and in its K loop.

    None if nothing is loaded again: what sm_120 stores beside its barriers was in no
    register.
    """

    everywhere: int
    in_k_loop: int


def spills(sass: str) -> Spills:
    """What of a kernel goes by way of the stack."""
    code = instructions(sass)
    if not any(instruction.name.startswith("LDL") for instruction in code):
        return Spills(0, 0)
    blocks = blocks_of(code)
    inside = [
        instruction
        for at in k_loop(blocks, followers(blocks))
        for instruction in blocks[at]
    ]
    return Spills(_stacked(code), _stacked(inside))


def _stacked(code: Sequence[Instruction]) -> int:
    return sum(bool(_STACK.match(instruction.name)) for instruction in code)


def instructions(sass: str) -> list[Instruction]:
    """The instructions in their order."""
    return [
        Instruction(
            int(found["address"], 16),
            bool(found["guard"]) and found["guard"].strip() != "@PT",
            found["name"],
            found["operands"].strip(),
        )
        for found in map(_INSTRUCTION.search, sass.splitlines())
        if found
    ]


def blocks_of(code: Sequence[Instruction]) -> list[Block]:
    """The code, cut where a jump arrives and after one that leaves."""
    starts = {target for instruction in code for target in _targets(instruction)}
    starts |= {next_.address for one, next_ in pairwise(code) if _leaves(one)}
    blocks: list[list[Instruction]] = [[]]
    for instruction in code:
        if instruction.address in starts and blocks[-1]:
            blocks.append([])
        blocks[-1].append(instruction)
    return [tuple(block) for block in blocks if block]


def followers(blocks: Sequence[Block]) -> Graph:
    """What may run after each block."""
    at = {block[0].address: number for number, block in enumerate(blocks)}
    graph = {}
    for number, block in enumerate(blocks):
        last = block[-1]
        after = [at[target] for target in _targets(last) if target in at]
        if not _always_leaves(last) and number + 1 < len(blocks):
            after.append(number + 1)
        graph[number] = tuple(after)
    return graph


def k_loop(blocks: Sequence[Block], graph: Graph) -> set[int]:
    """The blocks that run for each block of K.

    Those of the innermost loop around an instruction of the tensor cores, or around
    multiply-adds where there is none. In a loop that stores results too, which takes
    tile after tile, those without which it cannot get back to that instruction.
    """
    unit = _MATRIX if _contain(blocks, range(len(blocks)), _MATRIX) else _MULTIPLY_ADD
    found: set[int] = set()
    for number in _contain(blocks, range(len(blocks)), unit):
        loop = innermost(graph, number)
        if _contain(blocks, sorted(loop), _RESULT):
            loop = {
                block
                for block in loop
                if block == number
                or number not in reached(graph, number, loop - {block})
            }
        found |= loop
    return found


def innermost(graph: Graph, number: int) -> set[int]:
    """The blocks of the innermost loop around a block; none if it is in none."""
    loop, within = set[int](), set(graph)
    while True:
        inner = {
            block
            for block in reached(graph, number, within)
            if number in reached(graph, block, within)
        }
        if not inner:
            return loop
        loop = inner
        entered = {
            to for block in graph.keys() - loop for to in graph[block] if to in loop
        }
        header = min(entered or loop)
        if header == number:
            return loop
        within = loop - {header}


def reached(graph: Graph, start: int, within: set[int]) -> set[int]:
    """The blocks of `within` that may run some time after a block, perhaps itself."""
    found: set[int] = set()
    waiting = [start]
    while waiting:
        for block in graph[waiting.pop()]:
            if block in within and block not in found:
                found.add(block)
                waiting.append(block)
    return found


def _contain(
    blocks: Sequence[Block], numbers: Sequence[int], what: re.Pattern[str]
) -> list[int]:
    """Which of the blocks have such an instruction."""
    return [
        number
        for number in numbers
        if any(what.match(instruction.name) for instruction in blocks[number])
    ]


def _targets(one: Instruction) -> Iterator[int]:
    """Where a jump may lead."""
    if one.name.startswith(_JUMPS):
        yield from (
            int(text, 16) for text in re.findall(r"\b0x[0-9a-f]+", one.operands)
        )


def _leaves(one: Instruction) -> bool:
    return one.name.startswith((*_JUMPS, *_ENDS))


def _always_leaves(one: Instruction) -> bool:
    """Whether the next instruction never follows: calls return, guards may not hold."""
    jumps = one.name.startswith(("BRA", "JMP")) and one.operands.startswith("0x")
    return not one.guarded and (jumps or one.name.startswith(_ENDS))
