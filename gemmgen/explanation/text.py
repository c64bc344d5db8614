"""The argument in words, for a terminal of 88 columns: short sentences with numbers."""

import textwrap
from collections.abc import Iterable, Iterator

from gemmgen.explanation.facts import Argument, Candidate, TableRow
from gemmgen.explanation.stages_text import stages_text
from gemmgen.explanation.words import TIED, aligned, us

_WIDTH = 88


def as_text(told: Argument) -> str:
    """The argument, section by section."""
    parts = [
        f"{told.kernel}, {told.shape} (M x N x K), on {told.target} "
        f"({told.sources.gpu})\ntile: {told.choice.tile} (m x n x k, stages, warps)",
        _section("table row", _row(told)),
        _section("schedules", _schedules(told)),
        _section("stages", stages_text(told)),
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
    return "\n".join([title, *wrapped]).replace(TIED, " ")


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
            timed = f", {us(offer.measured)} measured" if offer.measured else ""
            guess = f"{us(offer.seconds or 0.0)} predicted"
            yield f"{offer.schedule}: {offer.tile}, {guess}{timed}"


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
    unit, sms = ("clusters", f" of {waves.ctas} SMs") if waves.ctas > 1 else ("SMs", "")
    yield (
        f"{waves.tiles:,} tiles{parts} on {waves.sms} {unit}{sms}: {waves.turns} "
        f"wave{'s' * (waves.turns > 1)}, {waves.together} at a time on each"
    )
    yield (
        f"in the last wave {waves.last} {unit} work, {waves.idle:.1%} are idle; over "
        f"all waves {waves.busy:.1%} are busy"
    )
    if waves.inside < 1:
        yield f"{waves.inside:.1%} of the tiles' area is inside the result"


def _roofline(told: Argument) -> Iterator[str]:
    roof = told.roofline
    yield (
        f"{roof.flops / 1e9:,.1f} GFLOP, {roof.bytes / 1e6:,.1f} MB that must be "
        f"moved: {roof.intensity:,.0f} FLOP a byte, ridge at {roof.ridge:,.0f}"
    )
    yield f"{roof.kind}: {roof.peak / 1e12:,.0f} TFLOP/s, {us(roof.compute_seconds)}"
    yield f"memory: {roof.bandwidth / 1e12:.2f} TB/s, {us(roof.memory_seconds)}"
    bound = "multiplying" if roof.binds == "compute" else "memory"
    yield f"{bound} binds: no less than {us(roof.seconds)}"
    yield (
        f"tiles load {roof.l2_traffic / 1e6:,.0f} MB through L2, memory moves "
        f"{roof.traffic / 1e6:,.0f} MB"
    )


def _prediction(told: Argument) -> Iterator[str]:
    guess = told.prediction
    yield (
        f"launch {us(guess.launch)} + outside the loop {us(guess.outside)} + "
        f"max(loop {us(guess.loop)}, memory {us(guess.memory)})"
    )
    bound = "the K loop" if guess.binds == "loop" else "memory"
    yield (
        f"= {us(guess.seconds)}: {guess.flops_per_second / 1e12:,.0f} TFLOP/s, "
        f"{guess.share:.1%} of the roofline; {bound} binds"
    )
    if guess.by_costs is not None:
        yield f"by its costs, which launchers choose by: {us(guess.by_costs)}"
    if guess.measured is not None:
        yield (
            f"measured: {us(guess.measured)}, "
            f"{guess.measured / guess.seconds:.2f} of the prediction"
        )


def _alternatives(told: Argument) -> Iterator[str]:
    chosen = next(candidate for candidate in told.candidates if candidate.chosen)
    fastest = told.candidates[0].seconds
    yield from aligned(
        [
            {
                "tile": f"{candidate.tile}{' *' if candidate.chosen else ''}",
                "tiles": _in_parts(candidate),
                "waves": f"{candidate.waves:,}",
                "blocks": f"{candidate.blocks:,}",
                "predicted": us(candidate.seconds),
                "measured": us(candidate.measured) if candidate.measured else "",
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


def _in_parts(candidate: Candidate) -> str:
    parts = f" x {candidate.parts}" if candidate.parts > 1 else ""
    return f"{candidate.tiles:,}{parts}"


def _sources(told: Argument) -> Iterator[str]:
    rates, sources = told.sources.rates, told.sources
    yield (
        f"predicted times: gemmgen/cost/time.py with the rates of the {sources.gpu} "
        f"({sources.rates_from}): clock {rates['clock'] / 1e9:.2f}{TIED}GHz, "
        f"L2 {rates['l2_bandwidth'] / 1e12:.1f}{TIED}TB/s, "
        f"memory {rates['memory_bandwidth'] / 1e12:.2f}{TIED}TB/s, "
        f"latency {us(rates['latency'])}, launch {us(rates['launch'])}, "
        f"a tile outside its loop {us(rates['tile'])}"
    )
    if sources.tuning is None:
        yield f"measured times: none, no tuning file has the kernel on {told.target}"
    else:
        here = "" if sources.measured_here else "; this shape was not timed"
        yield f"measured times: {sources.tuning}{here}"
