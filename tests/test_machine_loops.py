"""The K loop in machine code: straight, within a loop over tiles, flattened into it."""

import pytest

from gemmgen.verification.machine.machine_loops import (
    Spills,
    blocks_of,
    followers,
    innermost,
    instructions,
    k_loop,
    spills,
)


def listing(text: str) -> str:
    """As `cuobjdump -sass` prints it; `name:` marks a place that jumps name."""
    places: dict[str, int] = {}
    lines: list[str] = []
    for line in text.strip().splitlines():
        line = line.strip()
        if line.endswith(":"):
            places[line[:-1]] = 16 * len(lines)
        else:
            lines.append(line)
    shown = []
    for number, line in enumerate(lines):
        for place, address in places.items():
            line = line.replace(f"<{place}>", f"{address:#x}")
        shown.append(f"        /*{16 * number:04x}*/    {line} ;  /* 0x0000000000 */")
        shown.append("                                   /* 0x003fde0000000000 */")
    return "\n".join(["\t\tFunction : kernel", *shown])


STRAIGHT = """
    {before}
    loop:
    LDGSTS.E.128 [R2], desc[UR4][R6.64], !P1
    HMMA.16816.F32.BF16 R4, R8, R10, R4
    {inside}
    @!P0 BRA <loop>
    {after}
    STG.E.128 desc[UR4][R2.64], R4
    EXIT
"""
# Consumers take tile after tile; they spin until a block has arrived.
NESTED = """
    {before}
    tile:
    LDS R3, [R2]
    loop:
    SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R5], R6
    @P0 BRA <arrived>
    spin:
    SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R5], R6
    @!P0 BRA <spin>
    arrived:
    HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24
    {inside}
    @!P1 BRA <loop>
    {after}
    UTMASTG.2D [UR8], [UR6]
    @!P2 BRA <tile>
    EXIT
"""
# One loop over all K blocks, which at the last of a tile goes by way of the epilogue.
FLATTENED = """
    {before}
    loop:
    UTMALDG.2D [UR16], [UR6], desc[URZ]
    HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24
    {inside}
    @P1 BRA <next>
    {after}
    UTMASTG.2D [UR8], [UR6]
    next:
    @!P2 BRA <loop>
    EXIT
"""
PLACES = ("before", "inside", "after")


@pytest.mark.parametrize("code", [STRAIGHT, NESTED, FLATTENED])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", ["LDL R7, [R1]", "STL.64 [R1+0x8], R6"])
def test_the_k_loop_is_told_from_what_is_beside_it(
    code: str, place: str, how: str
) -> None:
    texts = dict.fromkeys(PLACES, "MOV R7, R6") | {place: how}
    text = listing(code.format(**texts))
    if how.startswith("STL"):  # what is never loaded again was in no register
        assert spills(text) == Spills(0, 0)
        text += listing("LDL R7, [R1]").replace("/*0000*/", "/*1000*/")
        assert spills(text) == Spills(2, int(place == "inside"))
    else:
        assert spills(text) == Spills(1, int(place == "inside"))


def test_multiply_adds_make_the_loop_where_no_tensor_core_works() -> None:
    code = STRAIGHT.format(before="NOP", inside="LDL R7, [R1]", after="FFMA R1, R2, R3")
    assert spills(listing(code)).in_k_loop == 1  # HMMA's
    fused = code.replace("HMMA.16816.F32.BF16", "FFMA")
    assert spills(listing(fused)).in_k_loop == 1
    alone = code.replace("HMMA.16816.F32.BF16", "FADD")
    assert spills(listing(alone)) == Spills(1, 0)


def test_what_runs_only_for_some_blocks_of_k_counts() -> None:
    """A part of the loop that is jumped over, in a loop that stores no result."""
    text = """
    loop:
    HMMA.16816.F32.BF16 R4, R8, R10, R4
    @P1 BRA <over>
    LDL R7, [R1]
    over:
    @!P0 BRA <loop>
    STG.E.128 desc[UR4][R2.64], R4
    EXIT
    """
    assert spills(listing(text)) == Spills(1, 1)


def test_blocks_follow_jumps_calls_and_guards() -> None:
    text = """
    @P0 CALL.REL.NOINC <divided>
    @!P1 EXIT
    BRA <end>
    MOV R1, R2
    end:
    BRA.U UP0, <end>
    EXIT
    divided:
    RET.REL.NODEC R2 0x0
    """
    code = instructions(listing(text))
    assert [one.name for one in code[:3]] == ["CALL.REL.NOINC", "EXIT", "BRA"]
    assert [one.guarded for one in code[:3]] == [True, True, False]
    blocks = blocks_of(code)
    graph = followers(blocks)
    assert graph == {0: (6, 1), 1: (2,), 2: (4,), 3: (4,), 4: (4, 5), 5: (), 6: ()}
    assert innermost(graph, 4) == {4} and not innermost(graph, 3)
    assert k_loop(blocks, graph) == set()
