"""The faults that only warp-specialized kernels can have: of barriers, rings and order.

Each is an edit of one node, as in `faults`; texts are those of the template.
"""

import ast
from collections.abc import Iterator
from itertools import pairwise

from gemmgen.base.ast_edits import Edit
from gemmgen.verification.mutate.pipeline_edits import (
    ARRIVE,
    COPIES,
    EXPECT,
    STORES,
    WAIT,
    behind,
    bounded,
    changed,
    counted,
    dropped,
    misnumbered,
    next_stage,
    other_barrier,
    other_block,
    otherwise,
    passed_as,
    replaced,
    same_k,
    shortened,
    swapped_corner,
    undone,
    without_term,
)

_SUM_WAIT = "hopper.warpgroup_mma_wait"
_FENCE, _STORE_WAIT = "hopper.fence_async_shared", "tma.store_wait"
_MOST_TENSORS = 8


def pipeline_families() -> Iterator[tuple[str, Edit]]:
    """Every kind of fault, with the edit that makes it."""
    yield from _dropped()
    yield from _barriers()
    yield from _moved()
    yield from _sums()
    yield from _rings()
    yield from _tiles()


def same_pipeline(family: str, function: ast.stmt, node: ast.AST) -> str | None:
    """Why a fault of a function's last statement makes no difference, if so."""
    if family not in _LAST_WAITS or not isinstance(function, ast.FunctionDef):
        return None
    lines = [line.strip() for line in ast.unparse(function).splitlines()]
    given_back = any(
        wait == f"{_STORE_WAIT}(0)" and arrival.startswith(f"{ARRIVE}(operand_empty")
        for wait, arrival in pairwise(lines)
    )
    last = getattr(node, "lineno", 0) == function.body[-1].lineno
    return _WAITED_FOR if last and given_back else None


_WAITED_FOR = "every tile has been waited for before it is given back"
_LAST_WAITS = ("wait for stores dropped", "a store too few waited for")


def _dropped() -> Iterator[tuple[str, Edit]]:
    for name, functions in (
        ("wait for a barrier dropped", (WAIT,)),
        ("arrival dropped", (ARRIVE,)),
        ("bytes not expected", (EXPECT,)),
        ("block not loaded", COPIES),
        ("tile not stored", STORES),
        ("fence dropped", (_FENCE,)),
        ("wait for stores dropped", (_STORE_WAIT,)),
        ("wait for products dropped", (_SUM_WAIT,)),
    ):
        yield name, dropped(functions)


def _barriers() -> Iterator[tuple[str, Edit]]:
    """Another barrier, phase, count or number of bytes."""
    yield "wait for the other phase", changed(WAIT, 1, "{} ^ 1")
    yield "phase stands still", replaced("k_iter // STAGES & 1", "0")
    yield "phase stands still", replaced("wave & 1", "0")
    yield "phase stands still", replaced("turn // (1 + PINGPONG) & 1", "0")
    yield (
        "phase changes too late",
        replaced("k_iter // STAGES", "k_iter // (STAGES + 1)"),
    )
    for function in (WAIT, ARRIVE):
        yield "barrier taken for another", other_barrier(function)
        yield "barrier of another stage", next_stage(function)
    for filled, other, following in (
        ("full.index(stage)", "empty.index(stage)", "full.index((stage + 1) % STAGES)"),
        (
            "operand_full.index(consumer)",
            "operand_empty.index(consumer)",
            "operand_full.index(0)",
        ),
    ):
        yield "barrier taken for another", replaced(filled, other)
        yield "barrier of another stage", replaced(filled, following)
    for count in ("{} + 1", "{} - 1"):
        for function in ("bars", "ring"):
            yield "barrier counts one more or less", changed(function, 1, count)
        yield "barrier counts one more or less", counted(count)
    for size in ("{} + 16", "{} // 2"):
        yield "bytes expected that do not come", changed(EXPECT, 1, size)


def _moved() -> Iterator[tuple[str, Edit]]:
    """Statements in the wrong order: the first of two behind the second."""
    own, freed = "_smem.index(CONSUMER)", f"{ARRIVE}(operand_empty"
    for name, first, second in (
        ("stage read before its wait", f"{WAIT}(full", "acc = hopper.warpgroup_mma("),
        ("stage released before its wait", f"acc = {_SUM_WAIT}", f"{ARRIVE}(empty"),
        ("stage expected before its wait", f"{WAIT}(empty", EXPECT),
        ("stage filled before its wait", f"{WAIT}(empty", "k_iter += 1"),
        ("operand read before its wait", f"{WAIT}(operand_full", f"{own}.load"),
        ("operand loaded before its wait", f"{WAIT}(operand_empty", COPIES[0]),
        ("fence before the store", f"{own}.store", _FENCE),
        ("tile stored before the fence", _FENCE, "_desc, [first_m"),
        ("tile written before the wait", f"{_STORE_WAIT}(0)", ".store("),
        ("tile given back before it is read", ".load(layout)", freed),
        ("tile given back before it is stored", f"{_STORE_WAIT}(0)", freed),
        ("turn not waited for", "if PINGPONG:\n    mbarrier.wait", "for k in"),
    ):
        yield name, behind(first, second)
        yield name, behind(first, second, "orelse")


def _sums() -> Iterator[tuple[str, Edit]]:
    """Products that are not waited for, added or released as they should be."""
    yield "a product too few waited for", changed(_SUM_WAIT, 0, "{} + 1")
    yield "a store too few waited for", changed(_STORE_WAIT, 0, "{} + 1")
    yield "sum begun anew", passed_as("use_acc", "False")
    yield "sum begun anew", passed_as("use_acc", "k > 1")
    yield "stage released that is not read", passed_as("pred", "True")
    yield "stage not released", passed_as("pred", "k > 1")
    yield "stage released too early", replaced(
        "(k_iter + STAGES - 1) % STAGES", "k_iter % STAGES"
    )
    yield "sum not turned back", undone("acc = acc.permute((1, 0))")


def _rings() -> Iterator[tuple[str, Edit]]:
    """Blocks of shared memory that are not the ones."""
    yield "ring of fewer stages", replaced("k_iter % STAGES", "k_iter % (STAGES - 1)")
    yield "block of another stage", other_block("stage", "(stage + 1) % STAGES")
    for parts, part in (("PARTS", "part"), ("NUM_WGS", "WG")):
        old = f"stage * {parts} + {part}"
        yield "slice of another", other_block(old, f"stage * {parts}")
        yield "slice of another stage", other_block(
            old, f"(stage + 1) % STAGES * {parts} + {part}"
        )
    for side in ("LEFT", "RIGHT", "A", "B"):
        yield "block turned the other way", otherwise(f"{side}_K_MAJOR")
    yield "tile of another", other_block("CONSUMER", "1 - CONSUMER")
    yield "tile of another", other_block("CONSUMER", "0")
    yield "tile of another", other_block("consumer", "0")
    yield "ring begun elsewhere", replaced("(CONSUMER - WG) * tl.cdiv(K, BLOCK_K)", "0")
    yield "turn of the same", replaced(
        "order.index(1 - CONSUMER)", "order.index(CONSUMER)"
    )
    yield "turn begun by the other", replaced(
        "wave & 1 ^ 1 - CONSUMER", "wave & 1 ^ CONSUMER"
    )
    for function, place in (("buffers", 1), ("bars", 0), ("ring", 0)):
        for old, new in (("STAGES", "(STAGES - 1)"), ("CONSUMERS", "1")):
            yield "ring allocated too short", shortened(function, place, old, new)
    yield "ring allocated too short", replaced("[COUNT, 1]", "[COUNT - 1, 1]")


def _tiles() -> Iterator[tuple[str, Edit]]:
    """Tiles and K blocks that nobody computes, or that are not where they belong."""
    yield "last tile lost", bounded("tiles", "tiles - 1")
    yield "tile stride", bounded("tl.num_programs(0)", "1")
    yield "tile stride", bounded("step", "1")
    yield "tile stride", replaced(
        "(1 + PINGPONG) * tl.num_programs(0)", "tl.num_programs(0)"
    )
    yield "a consumer's tiles are the other's", replaced(
        "tl.program_id(0) + CONSUMER * PINGPONG * tl.num_programs(0)",
        "tl.program_id(0)",
    )
    yield "last K block lost", bounded("K", "K - BLOCK_K")
    yield "last K block lost", bounded("k_blocks", "k_blocks - 1")
    yield "K block loaded again", same_k
    for slice_ in (
        *("WG * BLOCK_N_PER_WG", "WG * BLOCK_M_PER_WG", "part * SIDE"),
        *("part % PARTS_M * ROWS", "part % PARTS_N * COLUMNS"),
    ):
        yield "slice of a tile", without_term(slice_)
    yield "corner's coordinates swapped", swapped_corner
    yield "consumers of one number", misnumbered
