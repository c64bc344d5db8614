"""The section on stages: what a K block costs, how many hide the latency, which fit."""

from collections.abc import Iterator

from gemmgen.explanation.facts import Argument, Block, Depth, Stages
from gemmgen.explanation.words import aligned, ns, us
from gemmgen.schedules.parts.tile import LINE_BYTES

_LIMITS = {"unit": "the unit", "shared": "shared memory", "l2": "L2"}


def stages_text(told: Argument) -> Iterator[str]:
    """Its lines, some of them of tables."""
    stages, block = told.stages, told.block
    yield f"a load's data arrive {ns(stages.latency)} after it is issued"
    yield f"a K block takes an SM {ns(block.seconds)}; {_LIMITS[block.limit]} limits:"
    yield from aligned(list(_block(told)))
    if min(block.row_starts.values()) < LINE_BYTES:
        yield _cut_rows(block)
    if len(stages.depths) == 1:
        yield "gemv has no ring: programs beside each other hide the latency"
        return
    yield from _depth_needed(stages, block.seconds, block.unit)
    yield from _cap(told)
    yield from aligned([_depth(depth, stages) for depth in stages.depths])


def _cut_rows(block: Block) -> str:
    starts = " and ".join(f"{each} ({name})" for name, each in block.row_starts.items())
    return (
        f"rows begin at multiples of {starts} bytes: those that do not fill lines of "
        f"{LINE_BYTES} take L2 longer"
    )


def _block(told: Argument) -> Iterator[dict[str, str]]:
    block, rates = told.block, told.sources.rates
    clock = f"{block.flops_per_clock} a clock, {rates['clock'] / 1e9:.2f} GHz"
    reads = " and their loads" if block.unit == "fma" else ""
    yield {
        "part": block.unit,
        "time": ns(block.unit_seconds),
        "work": f"{block.flops:,} FLOP{reads} at {clock}",
    }
    if block.prepared:
        yield {
            "part": "registers",
            "time": ns(block.prepared),
            "work": "operands made ready before the unit can start",
        }
    yield {
        "part": "shared memory",
        "time": ns(block.shared_seconds),
        "work": f"{block.moved:,} bytes written and read, 128 a clock",
    }
    yield {
        "part": "L2",
        "time": ns(block.l2_seconds),
        "work": f"{block.loaded:,} bytes of A and B, this SM's share of L2",
    }


def _depth_needed(stages: Stages, seconds: float, unit: str) -> Iterator[str]:
    if stages.planned != stages.latency:
        yield (
            f"stages are sized for {ns(stages.planned)}: such tiles read from memory "
            "as fast as it goes, which makes loads late"
        )
    block = ns(seconds)
    if stages.together > 1:
        block = f"({block} x {stages.together} programs)"
    stays = "every stage" if stages.needed == stages.needed_stages else "all but one"
    yield (
        f"ring: ceil({ns(stages.planned)} / {block}) + 1 = "
        f"{stages.needed} K blocks hide it"
    )
    yield (
        f"{unit} has {stays} in the ring: {stages.needed_stages} stages hide it, the "
        f"tile has {stages.stages}"
    )
    if stages.ahead == 0 and stages.ring > 1:
        yield (
            "but rows are not aligned: pointers load each element into registers, and "
            "nothing is on its way while a block is multiplied"
        )
    elif not stages.hidden:
        yield "not hidden: the unit waits for loads in every K block"


def _cap(told: Argument) -> Iterator[str]:
    room, stages = told.occupancy, told.stages
    capped = room.next_stage > room.limit
    yield (
        f"{stages.stages + 1} stages take {room.next_stage:,} bytes of shared memory, "
        f"of {room.limit:,}: {'they do not fit' if capped else 'they would fit'}"
    )
    best = min(
        (depth for depth in stages.depths if depth.fits),
        key=lambda depth: depth.seconds,
    )
    mine = next(depth for depth in stages.depths if depth.stages == stages.stages)
    if mine.seconds > 1.005 * best.seconds:
        gain = mine.seconds / best.seconds - 1
        yield (
            f"{best.stages} would be faster here, by {gain:.1%}: stages are chosen for "
            "a class of shapes, or by the spec"
        )
    elif not capped:
        bound = (
            ": memory binds, not the loop" if told.prediction.binds != "loop" else ""
        )
        yield f"more gain nothing here{bound}"


def _depth(one: Depth, stages: Stages) -> dict[str, str]:
    return {
        "stages": f"{one.stages}{' *' if one.stages == stages.stages else ''}",
        "bytes": f"{one.shared_memory:,}",
        "programs an SM": str(one.resident) if one.fits else "",
        "predicted": us(one.seconds) if one.fits else "does not fit",
    }
