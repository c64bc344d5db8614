"""What the compiler makes of a kernel, for each tile and target, with no GPU.

Checks the instruction, spills, loads and shared memory of the path that aligned,
contiguous operands take. Runs where Triton compiles, never interprets.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import triton

from gemmgen.cost.resources import instruction, shared_memory
from gemmgen.hardware.targets import Target
from gemmgen.schedules import described, schedule_of
from gemmgen.schedules.parts.consumers import multiplies_in_one, ring_bytes
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.plan import Plan
from gemmgen.tables.dtypes import DTYPES
from gemmgen.verification.example import subject
from gemmgen.verification.example.aligned import compile_aligned, jit_function
from gemmgen.verification.machine.machine_code import (
    Usage,
    block_loads,
    block_stores,
    copies,
    dump,
    loads,
    usage,
)
from gemmgen.verification.machine.machine_loops import Spills, spills
from gemmgen.verification.machine.sample import Aimed

_PTX_INSTRUCTION = {
    "wgmma": r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k\d+\.{acc}\.{operand}",
    "mma": r"mma\.sync\.aligned\.m\d+n\d+k\d+\.row\.col\.{acc}\.{operand}",
    "tcgen05": r"tcgen05\.mma\.cta_group::1\.kind::{kind}",
    "fma": r"fma\.rn\.{acc}",
}
# What a newer Triton has where the model, which holds for 3.6, expects no better: 3.9
# multiplies fp64 on the tensor cores above sm_90 too.
_BETTER = {("fma", "fp64"): "mma"}

_PLACE = re.compile(r"ptr addrspace\(3\) @global_smem, i(?:32|64) (\d+)\)")
"""A place in shared memory, in LLVM's words."""

_WIDEST = 16
"""Bytes that a thread can load or copy at once."""

_LESS = "a smaller tile or more warps need fewer"


@dataclass(frozen=True)
class Compiled:
    """One compilation: what the compiler used, what of it is wrong, what worth a note.

    Of what `spilled_bytes` a thread has on the stack, the K loop may use none.
    """

    target: str
    tile: Tile
    registers: int
    spilled_bytes: int
    shared_bytes: int
    predicted_bytes: int
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()


def compilable(plan: Plan, module: ModuleType) -> tuple[Aimed, ...]:
    """The tiles of a kernel, but those of clusters where this Triton has none."""
    return tuple(one for one in plan.tiles if subject.launches(module, one[1]))


def check_kernel(
    plan: Plan, module: ModuleType, tiles: Iterable[Aimed]
) -> Iterator[Compiled]:
    """Compile the kernel of a generated module for each of some tiles."""
    for target, tile in tiles:
        kernel = jit_function(module, plan, tile.schedule)
        yield check_tile(plan, kernel, target, tile)


def left_out(plan: Plan, able: Sequence[Aimed]) -> tuple[str, ...]:
    """What is not among the compilable tiles of a kernel, as a note."""
    told = f"tiles of clusters are not compiled, Triton {triton.__version__} has none"
    return (told,) if len(able) < len(plan.tiles) else ()


def check_tile(plan: Plan, kernel: Any, target: Target, tile: Tile) -> Compiled:
    """Compile one tile for one target and hold the result against the plan."""
    made = compile_aligned(plan, kernel, target, tile)
    used = usage(made.asm["cubin"])
    spilled = _spilled(made.asm["cubin"], used)
    shared, predicted = made.metadata.shared, shared_memory(tile, plan.product, target)
    problems = (
        *_unit_problems(plan, target, tile, made.asm["ptx"]),
        *_spill_problems(spilled, used),
        *_load_problems(plan, target, tile, made.asm["ptx"]),
        *_shared_problems(target, shared),
        *_place_problems(plan, tile, made.asm["llir"]),
    )
    return Compiled(
        target.name,
        tile,
        registers=used.registers,
        spilled_bytes=used.stack if spilled.everywhere else 0,
        shared_bytes=shared,
        predicted_bytes=predicted,
        problems=problems,
        notes=(*_spill_notes(spilled, used), *_shared_notes(shared, predicted)),
    )


def _unit_problems(plan: Plan, target: Target, tile: Tile, ptx: str) -> Iterator[str]:
    unit, kind = instruction(tile, plan.product, target), plan.product.kind
    units = {unit, _BETTER.get((unit, kind), unit)}
    if not any(re.search(_pattern(plan, unit), ptx) for unit in units):
        yield f"no {unit} instruction for {kind} in the PTX"


def _place_problems(plan: Plan, tile: Tile, llir: str) -> Iterator[str]:
    """Inline PTX finds a ring of sides in one where shared memory begins."""
    if schedule_of(tile).specialized and multiplies_in_one(tile, plan.product):
        others = {int(place) for place in _PLACE.findall(llir)} - {0}
        if min(others) != ring_bytes(tile, plan.product):
            yield "the ring does not lie first in shared memory, where wgmma reads it"


def _spilled(cubin: bytes, used: Usage) -> Spills:
    """What goes by way of the stack, read only where there is one."""
    return spills(dump(cubin, "-sass")) if used.stack else Spills(0, 0)


def _spill_problems(spilled: Spills, used: Usage) -> Iterator[str]:
    if spilled.in_k_loop:
        yield (
            f"spills {used.stack} bytes of registers, in the K loop by "
            f"{spilled.in_k_loop} instructions; {_LESS}"
        )


def _spill_notes(spilled: Spills, used: Usage) -> Iterator[str]:
    if spilled.everywhere and not spilled.in_k_loop:
        yield f"spills {used.stack} bytes of registers, not in the K loop; {_LESS}"


def _load_problems(plan: Plan, target: Target, tile: Tile, ptx: str) -> Iterator[str]:
    """What is wrong with how A, B and [m, n] operands are loaded."""
    if schedule_of(tile).described:
        yield from _block_problems(plan, tile, ptx)
        return
    found = copies(ptx) if tile.stages > 1 else loads(ptx)
    if tile.stages > 1 and not found:
        yield "loads are not asynchronous"
        return
    expected = expected_loads(plan, target, tile)
    if tile.stages > 1:
        yield from _ratio_problems(found, expected)
    elif found[_WIDEST] < expected[_WIDEST]:
        yield f"{found[_WIDEST]} of {expected[_WIDEST]} loads of A and B are 128 bits"
    # The few columns of a gemv are no vector.
    if not schedule_of(tile).memory_bound:
        yield from _operand_problems(plan, tile, ptx)


def _block_problems(plan: Plan, tile: Tile, ptx: str) -> Iterator[str]:
    """What is wrong with a kernel that takes A and B as descriptors."""
    roles = described(tile.schedule, plan.product.kind)
    matrices = sum(operand.is_matrix for operand in plan.operands)
    blocks = len(plan.contraction.inputs) + (matrices if "operands" in roles else 0)
    if block_loads(ptx) < blocks:
        yield f"{block_loads(ptx)} of {blocks} blocks are loaded by tensor maps"
    if copies(ptx):
        yield "A or B is copied by threads beside its tensor map"
    stored = len(plan.results) if "results" in roles else 0
    if block_stores(ptx) < stored:
        yield f"{block_stores(ptx)} of {stored} results are stored by tensor maps"
    if "operands" not in roles:
        yield from _operand_problems(plan, tile, ptx)


def _operand_problems(plan: Plan, tile: Tile, ptx: str) -> Iterator[str]:
    """What is wrong with how [m, n] operands are loaded by pointers.

    Of small tiles each thread has less than it could load at once.
    """
    sizes = [DTYPES[one.dtype].bytes for one in plan.operands if one.is_matrix]
    most = tile.m * tile.n * max(sizes, default=0)
    if most >= _WIDEST * 32 * tile.warps and not loads(ptx)[_WIDEST]:
        yield "no load of an [m, n] operand is 128 bits wide"


def expected_loads(plan: Plan, target: Target, tile: Tile) -> Counter[int]:
    """Loads of one K block in a thread, by their bytes: 16, where the layout allows.

    The units that read operands from shared memory, wgmma and tcgen05, want tf32 along
    K there. An asynchronous copy cannot transpose, so it moves a block that is not
    contiguous along K by single elements; tf32x3 is split in registers, which can.
    """
    unit, product = instruction(tile, plan.product, target), plan.product
    if schedule_of(tile).memory_bound:
        block = tile.m * tile.n * tile.k * product.bytes
        rows = max(1, block // (32 * tile.warps * _WIDEST))
        return Counter({_WIDEST: rows * product.rights})
    along_k = unit in ("wgmma", "tcgen05") and product.mma.one_k_major
    expected: Counter[int] = Counter()
    for matrix in plan.contraction.inputs:
        rows = tile.m if "m" in matrix.axes else tile.n
        single = along_k and tile.stages > 1 and matrix.contiguous_axis != "k"
        each = rows * tile.k * product.bytes // (32 * tile.warps)
        widest = max(product.bytes, min(_WIDEST, each))
        width = product.bytes if single else widest
        share = each // width
        expected[width] += max(1, share)
    return expected


def _ratio_problems(found: Counter[int], expected: Counter[int]) -> Iterator[str]:
    """Copies stand in the code once for each block in flight, so only ratios count."""
    blocks = sum(found.values()) / sum(expected.values())
    for width in sorted(found.keys() | expected.keys()):
        if found[width] != blocks * expected[width]:
            yield (
                f"{found[width]} asynchronous copies of {width} bytes, "
                f"{blocks * expected[width]:g} were expected"
            )


def _shared_notes(shared: int, predicted: int) -> Iterator[str]:
    """What of the table's column is too low; it decides for GPUs with less."""
    if shared > predicted:
        yield f"takes {shared} bytes of shared memory, {predicted} were predicted"


def _shared_problems(target: Target, shared: int) -> Iterator[str]:
    if shared > target.shared_per_block:
        yield f"takes {shared} bytes of shared memory of {target.shared_per_block}"


def _pattern(plan: Plan, unit: str) -> str:
    """The instruction in PTX, for the accumulator and operand types of the plan."""
    mma = plan.product.mma
    accumulator = f"f{8 * DTYPES[plan.accumulator].bytes}"
    return _PTX_INSTRUCTION[unit].format(
        acc=accumulator,
        operand=mma.ptx or accumulator,
        kind=mma.tcgen05_kind,
    )
