"""The faults that only warp-specialized kernels can have: of barriers, rings and order.

Each is an edit of one node, as in `faults`; texts are those of what kernels share.
"""

from collections.abc import Iterator

from gemmgen.base.ast_edits import Edit, passed_as
from gemmgen.verification.faults.edits import (
    ARRIVE,
    COPIES,
    EXPECT,
    FENCE,
    STORE_WAIT,
    STORES,
    WAIT,
    ahead,
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
    replaced,
    same_k,
    shortened,
    swapped_corner,
    without_term,
)
from gemmgen.verification.faults.pieces import piece_families

_SUM_WAIT = "wait_for_products"
_WAIT_FOR_ALL, _ARRIVE_AT_ALL = "wait_for_all", "arrive_at_all"


def pipeline_families() -> Iterator[tuple[str, Edit]]:
    """Every kind of fault, with the edit that makes it."""
    yield from _dropped()
    yield from _barriers()
    yield from _moved()
    yield from _sums()
    yield from _rings()
    yield from _tiles()
    yield from _clusters()
    yield from piece_families()


def _dropped() -> Iterator[tuple[str, Edit]]:
    for name, functions in (
        ("wait for a barrier dropped", [WAIT, _WAIT_FOR_ALL]),
        ("arrival dropped", [ARRIVE, _ARRIVE_AT_ALL]),
        ("bytes not expected", [EXPECT]),
        ("block not loaded", [*COPIES]),
        ("tile not stored", [*STORES]),
        ("fence dropped", [FENCE]),
        ("wait for stores dropped", [STORE_WAIT]),
        ("wait for products dropped", [_SUM_WAIT]),
    ):
        yield name, dropped(functions)


def _barriers() -> Iterator[tuple[str, Edit]]:
    """Another barrier, phase, count or number of bytes."""
    yield "wait for the other phase", changed(WAIT, 1, "{} ^ 1")
    yield "wait for the other phase", changed(_WAIT_FOR_ALL, 2, "{} ^ 1")
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
        (
            "full.index(stage)",
            "empty[0].index(stage)",
            "full.index((stage + 1) % STAGES)",
        ),
        (
            "operand_full.index(consumer)",
            "operand_empty.index(consumer)",
            "operand_full.index(0)",
        ),
        (
            "operand_full.index(CONSUMER)",
            "operand_empty.index(CONSUMER)",
            "operand_full.index(0)",
        ),
    ):
        yield "barrier taken for another", replaced(filled, other)
        yield "barrier of another stage", replaced(filled, following)
    for count in ("{} + 1", "{} - 1"):
        for function in ("barriers", "ring", "stage_ring"):
            yield "barrier counts one more or less", changed(function, 1, count)
        yield "barrier counts one more or less", counted(count)
    for size in ("{} + 16", "{} // 2"):
        yield "bytes expected that do not come", changed(EXPECT, 1, size)


def _moved() -> Iterator[tuple[str, Edit]]:
    """Statements in the wrong order: the first of two behind the second."""
    freed = f"if len(descs) > 0:\n    {ARRIVE}(operand_empty"
    waited = f"sums = {_SUM_WAIT}"
    for name, first, second in (
        ("stage read before its wait", f"{WAIT}(full", "= multiply_stage("),
        ("stage released before its wait", waited, f"{_ARRIVE_AT_ALL}(empty"),
        ("stage expected before its wait", f"{_WAIT_FOR_ALL}(empty", EXPECT),
        ("stage filled before its wait", f"{_WAIT_FOR_ALL}(empty", "k_iter += 1"),
        ("operand loaded before its wait", f"{WAIT}(operand_empty", "load_pieces("),
        ("tile stored before the fence", FENCE, "store_piece("),
        ("tile written before the wait", f"{STORE_WAIT}(0)", FENCE),
        ("turn not waited for", "if PINGPONG:\n    mbarrier.wait", "for k in"),
    ):
        yield name, behind(first, second)
    yield "fence before the store", ahead(FENCE, ".store(values")
    yield "tile given back before it is stored", ahead(freed, "finishes_sums(")


def _sums() -> Iterator[tuple[str, Edit]]:
    """Products that are not waited for, added or released as they should be."""
    yield "a product too few waited for", changed(_SUM_WAIT, 1, "{} + 1")
    yield "a store too few waited for", changed(STORE_WAIT, 0, "{} + 1")
    yield "sum begun anew", changed("begin_products", 4, "False")
    yield "sum begun anew", changed("multiply_stage", 4, "k > 1")
    yield "sum begun anew", replaced("True if i > 0 else adds", "adds")
    yield "step of another", replaced("STEP * DEPTH", "0")
    yield "step of another", changed("left_step", 1, "0")
    yield "stage released at every step", replaced("i == ENDS * (STEPS - 1)", "True")
    yield "stage released that is not read", passed_as("pred", "adds | ENDS", "True")
    yield "stage not released", passed_as("pred", "adds | ENDS", "False")
    yield "stage released too early", replaced(
        "(k_iter + BEFORE) % STAGES", "k_iter % STAGES"
    )
    turned = "parts[i].permute((1, 0)) if SWAP_AB else parts[i]"
    yield "sum not turned back", replaced(turned, "parts[i]")


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
    for side in ("A", "B"):
        yield "block turned the other way", otherwise(f"{side}_K_MAJOR")
    for side in ("LEFT_K_MAJOR", "RIGHT_K_MAJOR"):
        yield "block turned the other way", replaced(side, f"not {side}")
    yield "tile of another", other_block("CONSUMER", "1 - CONSUMER")
    yield "tile of another", other_block("CONSUMER", "0")
    yield "tile of another", changed("load_pieces", 5, "0")
    yield "ring begun elsewhere", replaced("(CONSUMER - WG) * tl.cdiv(K, BLOCK_K)", "0")
    yield "turn of the same", replaced(
        "order.index(1 - CONSUMER)", "order.index(CONSUMER)"
    )
    yield "turn begun by the other", replaced(
        "wave & 1 ^ 1 - CONSUMER", "wave & 1 ^ CONSUMER"
    )
    stages, consumers = ("STAGES", "(STAGES - 1)"), ("CONSUMERS", "1")
    barriers = "NUM_WGS + (NUM_WGS == 1)", "1"
    for function, place, *pairs in (
        ("buffers", 1, stages),
        ("piece_buffers", 1, stages),
        ("operand_buffers", 1, consumers),
        ("result_buffers", 3, consumers),
        ("barriers", 0, barriers),
        ("ring", 0, consumers),
        ("stage_ring", 0, stages),
    ):
        for old, new in pairs:
            yield "ring allocated too short", shortened(function, place, old, new)
    for shape in ("[COUNT, CTAS]", "[COUNT, 1]"):
        short = shape.replace("COUNT", "COUNT - 1")
        yield "ring allocated too short", replaced(shape, short)


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
    yield "last K block lost", bounded("first_k + K", "first_k + K - BLOCK_K")
    yield "last K block lost", bounded("k_blocks", "k_blocks - 1")
    yield "K block loaded again", same_k
    for slice_ in (
        *("(1 - SWAP_AB) * WG * SLICE", "SWAP_AB * WG * SLICE"),
        *("part * boxes[0].block_shape[AXIS]", "part * (1 - SWAP_AB) * ROWS"),
        "part * SWAP_AB * COLUMNS",
    ):
        yield "slice of a tile", without_term(slice_)
    yield "corner's coordinates swapped", swapped_corner
    yield "consumers of one number", misnumbered
    yield "block of another split", replaced("0 if SPLIT_K == 1 else k_begin", "0")
    yield "place of another", replaced("tile * NUM_WGS + WG", "tile")
    yield "split of another", replaced("i * STEP", "0")
    yield "sum turned otherwise than kept", replaced(
        "(0, 4, 2, 1, 3, 5)", "(0, 3, 2, 4, 1, 5)"
    )


def _clusters() -> Iterator[tuple[str, Edit]]:
    """Two CTAs that are taken for one, or not asked before the other goes on.

    And what one has of barriers and sums.
    """
    yield "cluster taken for one CTA", replaced("gl.num_ctas()", "1")
    yield "other CTA not asked", replaced("len(empty)", "1")
    for function in (_WAIT_FOR_ALL, _ARRIVE_AT_ALL):
        yield "barrier of another stage", changed(function, 1, "({} + 1) % STAGES")
    yield "barrier of the wrong CTAs", replaced("[[1]]", "[[0]]")
    yield "barrier of the wrong CTAs", replaced("[[0]]", "[[1]]")
    yield "rows of the wrong CTA", replaced("[[1, 0]]", "[[0, 0]]")
