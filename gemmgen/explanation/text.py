"""The argument in words, for a terminal of 88 columns: short sentences with numbers."""

import textwrap
from collections.abc import Iterable, Iterator

from gemmgen.base.text_table import table
from gemmgen.explanation.facts import Argument, Depth, Stages, TableRow

_WIDTH = 88
_TIED = "\u00a0"
"""A space at which no line breaks: between a number and its unit, inside tables."""

_LIMITS = {"unit": "the unit", "shared": "shared memory", "l2": "L2"}


def as_text(told: Argument) -> str:
    """The argument, section by section."""
    parts = [
        f"{told.kernel}, {told.shape} (M x N x K), on {told.target} "
        f"({told.sources.gpu})\ntile: {told.choice.tile} (m x n x k, stages, warps)",
        _section("table row", _row(told)),
        _section("schedules", _schedules(told)),
        _section("stages", _stages(told)),
        _section("shared memory and occupancy", _occupancy(told)),
        _section("waves", _waves(told)),
        _section("roofline", _roofline(told)),
        _section("prediction", _prediction(told)),
        _section("alternatives", _alternatives(told)),
        _section("sources", _sources(told)),
    ]
    return "\n\n".join(parts)


def _section(title: str, lines: Iterable[str]) -> str:
    wrapped = [
        piece
        for line in lines
        for piece in textwrap.wrap(
            line, _WIDTH, initial_indent="  ", subsequent_indent=" " * 6,
            break_long_words=False, break_on_hyphens=False,
        )
    ]  # fmt: skip
    return "\n".join([title, *wrapped]).replace(_TIED, " ")


def _aligned(rows: list[dict[str, str]]) -> list[str]:
    """The lines of a table, which are not wrapped."""
    return [line.replace(" ", _TIED) for line in table(rows).splitlines()]


def _row(told: Argument) -> Iterator[str]:
    choice = told.choice
    if choice.row is None:
        yield f"there is none: {choice.source}"
        return
    row = choice.row
    limits = _up_to(row)
    yield f"row {row.number} of {row.of} serves contiguous, aligned tensors: {limits}"
    yield f"chosen by: {row.source}"
    for when, other in choice.detours.items():
        yield f"{when}: row {other.number}, {other.tile}"


def _up_to(row: TableRow) -> str:
    if row.least is not None:
        sizes = row.least, *row.limits.values()
        return "M from {:,} to {:,}, N {:,} and K {:,}".format(*sizes)
    return ", ".join(
        f"any {size}" if most is None else f"{size} up to {most:,}"
        for size, most in row.limits.items()
    )


def _schedules(told: Argument) -> Iterator[str]:
    for offer in told.schedules:
        if offer.why_not:
            yield f"{offer.schedule}: no, {offer.why_not}"
        else:
            timed = f", {_us(offer.measured)} measured" if offer.measured else ""
            guess = f"{_us(offer.seconds or 0.0)} predicted"
            yield f"{offer.schedule}: {offer.tile}, {guess}{timed}"


def _stages(told: Argument) -> Iterator[str]:
    stages, block = told.stages, told.block
    yield f"a load's data arrive {_ns(stages.latency)} after it is issued"
    yield f"a K block takes an SM {_ns(block.seconds)}; {_LIMITS[block.limit]} limits:"
    yield from _aligned(list(_block(told)))
    if len(stages.depths) == 1:
        yield "gemv has no ring: programs beside each other hide the latency"
        return
    yield from _depth_needed(stages, block.seconds, block.unit)
    yield from _cap(told)
    yield from _aligned([_depth(depth, stages) for depth in stages.depths])


def _block(told: Argument) -> Iterator[dict[str, str]]:
    block, rates = told.block, told.sources.rates
    clock = f"{block.flops_per_clock} a clock, {rates['clock'] / 1e9:.2f} GHz"
    reads = " and their loads" if block.unit == "fma" else ""
    yield {
        "part": block.unit,
        "time": _ns(block.unit_seconds),
        "work": f"{block.flops:,} FLOP{reads} at {clock}",
    }
    if block.prepared:
        yield {
            "part": "registers",
            "time": _ns(block.prepared),
            "work": "operands made ready before the unit can start",
        }
    yield {
        "part": "shared memory",
        "time": _ns(block.shared_seconds),
        "work": f"{block.moved:,} bytes written and read, 128 a clock",
    }
    yield {
        "part": "L2",
        "time": _ns(block.l2_seconds),
        "work": f"{block.loaded:,} bytes of A and B, this SM's share of L2",
    }


def _depth_needed(stages: Stages, seconds: float, unit: str) -> Iterator[str]:
    if stages.planned != stages.latency:
        yield (
            f"stages are sized for {_ns(stages.planned)}: such tiles read from memory "
            "as fast as it goes, which makes loads late"
        )
    block = _ns(seconds)
    if stages.together > 1:
        block = f"({block} x {stages.together} programs)"
    stays = "every stage" if stages.needed == stages.needed_stages else "all but one"
    yield (
        f"ring: ceil({_ns(stages.planned)} / {block}) + 1 = "
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
        "predicted": _us(one.seconds) if one.fits else "does not fit",
    }


def _occupancy(told: Argument) -> Iterator[str]:
    room = told.occupancy
    yield f"shared memory: {room.shared_memory:,} bytes of {room.limit:,} for a block"
    yield (
        f"registers: {room.registers} a thread, {room.accumulator} of them the "
        f"accumulator; {room.threads} threads"
    )
    fitting = ", ".join(f"{name} {most}" for name, most in room.fitting.items())
    yield f"programs that fit on an SM, by each limit: {fitting}"
    if room.looping:
        yield "one program runs on each SM and takes tile after tile"
    else:
        yield f"{room.resident} on an SM at a time; {room.limited_by} limits"


def _waves(told: Argument) -> Iterator[str]:
    waves = told.waves
    parts = f" x {waves.parts} parts of K" if waves.parts > 1 else ""
    yield (
        f"{waves.tiles:,} tiles{parts} on {waves.sms} SMs: {waves.turns} "
        f"wave{'s' * (waves.turns > 1)}, {waves.together} at a time on each"
    )
    yield (
        f"in the last wave {waves.last} SMs work, {waves.idle:.1%} are idle; over all "
        f"waves {waves.busy:.1%} are busy"
    )
    if waves.inside < 1:
        yield f"{waves.inside:.1%} of the tiles' area is inside the result"


def _roofline(told: Argument) -> Iterator[str]:
    roof = told.roofline
    yield (
        f"{roof.flops / 1e9:,.1f} GFLOP, {roof.bytes / 1e6:,.1f} MB that must be "
        f"moved: {roof.intensity:,.0f} FLOP a byte, ridge at {roof.ridge:,.0f}"
    )
    yield f"{roof.kind}: {roof.peak / 1e12:,.0f} TFLOP/s, {_us(roof.compute_seconds)}"
    yield f"memory: {roof.bandwidth / 1e12:.2f} TB/s, {_us(roof.memory_seconds)}"
    bound = "multiplying" if roof.binds == "compute" else "memory"
    yield f"{bound} binds: no less than {_us(roof.seconds)}"
    yield (
        f"tiles load {roof.l2_traffic / 1e6:,.0f} MB through L2, memory moves "
        f"{roof.traffic / 1e6:,.0f} MB"
    )


def _prediction(told: Argument) -> Iterator[str]:
    guess = told.prediction
    yield (
        f"launch {_us(guess.launch)} + outside the loop {_us(guess.outside)} + "
        f"max(loop {_us(guess.loop)}, memory {_us(guess.memory)})"
    )
    bound = "the K loop" if guess.binds == "loop" else "memory"
    yield (
        f"= {_us(guess.seconds)}: {guess.flops_per_second / 1e12:,.0f} TFLOP/s, "
        f"{guess.share:.1%} of the roofline; {bound} binds"
    )
    if guess.by_costs is not None:
        yield f"by its costs, which launchers choose by: {_us(guess.by_costs)}"
    if guess.measured is not None:
        yield (
            f"measured: {_us(guess.measured)}, "
            f"{guess.measured / guess.seconds:.2f} of the prediction"
        )


def _alternatives(told: Argument) -> Iterator[str]:
    chosen = next(candidate for candidate in told.candidates if candidate.chosen)
    fastest = told.candidates[0].seconds
    yield from _aligned(
        [
            {
                "tile": f"{candidate.tile}{' *' if candidate.chosen else ''}",
                "predicted": _us(candidate.seconds),
                "to the best": f"{candidate.seconds / fastest:.2f}",
                "measured": _us(candidate.measured) if candidate.measured else "",
            }
            for candidate in told.candidates
        ]
    )
    yield f"* serves; {told.candidates_in_all} tiles could"
    measured = [
        candidate.measured
        for candidate in told.candidates
        if candidate.measured is not None
    ]
    slower = chosen.measured is not None and chosen.measured > min(measured)
    costs = told.prediction.by_costs is not None
    if told.choice.row and not costs and (slower or chosen.seconds > fastest):
        yield "a row serves a class of shapes, over all of which its tile loses least"


def _sources(told: Argument) -> Iterator[str]:
    rates, sources = told.sources.rates, told.sources
    yield (
        f"predicted times: gemmgen/cost/time.py with the rates of the {sources.gpu} "
        f"({sources.rates_from}): clock {rates['clock'] / 1e9:.2f}{_TIED}GHz, "
        f"L2 {rates['l2_bandwidth'] / 1e12:.1f}{_TIED}TB/s, "
        f"memory {rates['memory_bandwidth'] / 1e12:.2f}{_TIED}TB/s, "
        f"latency {_us(rates['latency'])}, launch {_us(rates['launch'])}, "
        f"a tile outside its loop {_us(rates['tile'])}"
    )
    if sources.tuning is None:
        yield f"measured times: none, no tuning file has the kernel on {told.target}"
    else:
        here = "" if sources.measured_here else "; this shape was not timed"
        yield f"measured times: {sources.tuning}{here}"


def _us(seconds: float) -> str:
    micro = 1e6 * seconds
    return f"{micro:,.1f}{_TIED}µs" if micro >= 10 else f"{micro:.2f}{_TIED}µs"


def _ns(seconds: float) -> str:
    return f"{1e9 * seconds:,.0f}{_TIED}ns"
