"""What a benchmark came to: times, errors, ratios; as plain data."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gemmgen.measurement import Timing
from gemmgen.spec.shapes import Shape

OURS, AGAIN, EMPTY = "ours", "again", "empty"
"""The kernel, the same kernel as its own rival, and a call that does nothing."""
PRIVATE = ("activation",)
"""Peers that torch does not offer its users; they are no part of the best."""


@dataclass(frozen=True)
class Row:
    """One kernel at one shape.

    `timings` are by contestant, `errors` too: root mean square, relative, against
    float64, None where that is not finite. `outside` counts elements of our result
    beyond verify's bound. `roofline` is the least time in seconds by the rates that
    the report names, `traffic` the bytes that nobody can avoid. `texts` say what
    peers compute, `failed` why one could not take part. A is multiplied with so many
    `rights`.
    """

    kernel: str
    kind: str
    shape: Shape
    traffic: int
    roofline: float
    timings: Mapping[str, Timing]
    errors: Mapping[str, float | None]
    outside: int
    texts: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    rights: int = 1

    @property
    def work(self) -> int:
        """Multiplications and additions of all products."""
        return self.rights * self.shape.flops

    @property
    def ours(self) -> Timing:
        """The kernel's own time."""
        return self.timings[OURS]

    @property
    def peers(self) -> dict[str, Timing]:
        """The times of those it raced against."""
        own = (OURS, AGAIN, EMPTY)
        return {name: one for name, one in self.timings.items() if name not in own}

    @property
    def best(self) -> str | None:
        """The fastest peer, if there was any; a private one only where no other was."""
        peers = self.peers
        public = {name: one for name, one in peers.items() if name not in PRIVATE}
        peers = public or peers
        return min(peers, key=lambda name: peers[name].median) if peers else None

    @property
    def ratio(self) -> float | None:
        """The best peer's time over ours: above 1 ours is faster."""
        return self.ratio_to(self.best) if self.best else None

    def ratio_to(self, peer: str) -> float:
        """A contestant's time over ours."""
        return self.timings[peer].median / self.ours.median

    @property
    def noise(self) -> float:
        """How far the same kernel's second time is from its first, relative."""
        return abs(self.ratio_to(AGAIN) - 1.0)

    @property
    def flops(self) -> float:
        """Operations of the products per second."""
        return self.work / self.ours.median

    @property
    def bandwidth(self) -> float:
        """Compulsory bytes per second."""
        return self.traffic / self.ours.median

    @property
    def share(self) -> float:
        """The part of the roofline that the kernel reaches."""
        return self.roofline / self.ours.median


@dataclass(frozen=True)
class CallTime:
    """What a call that returns a new tensor costs the CPU, ours and torch's."""

    kernel: str
    shape: Shape
    timings: Mapping[str, Timing]

    @property
    def ratio(self) -> float:
        """Our time over torch's: below 1 ours costs less."""
        return self.timings[OURS].median / self.timings["torch"].median


@dataclass(frozen=True)
class Roofline:
    """The rates that shares refer to: FLOP/s by kind of product, and bytes/s."""

    gpu: str
    flops: Mapping[str, float]
    bandwidth: float

    def seconds(self, kind: str, work: int, traffic: int) -> float:
        """The least time for so many operations of a kind that move so many bytes."""
        return max(work / self.flops[kind], traffic / self.bandwidth)


@dataclass(frozen=True)
class Benchmark:
    """A run: its rows in the order of the specs' kernels and of the shapes."""

    environment: Mapping[str, str]
    roofline: Roofline
    flushed_bytes: int
    rows: tuple[Row, ...]
    calls: tuple[CallTime, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every result was right."""
        return all(row.outside == 0 for row in self.rows)

    @property
    def kernels(self) -> dict[str, tuple[Row, ...]]:
        """The rows of each kernel."""
        names = dict.fromkeys(row.kernel for row in self.rows)
        return {
            name: tuple(row for row in self.rows if row.kernel == name)
            for name in names
        }

    @property
    def empty(self) -> float:
        """Seconds that a call seems to take which does nothing: the harness's own."""
        times = sorted(row.timings[EMPTY].median for row in self.rows)
        return times[len(times) // 2] if times else 0.0

    def as_json(self) -> dict[str, Any]:
        """The run as plain data."""
        return {
            "environment": dict(self.environment),
            "roofline": {
                "gpu": self.roofline.gpu,
                "flops": dict(self.roofline.flops),
                "bandwidth": self.roofline.bandwidth,
            },
            "flushed_bytes": self.flushed_bytes,
            "rows": [_row_as_json(row) for row in self.rows],
            "calls": [
                {
                    "kernel": call.kernel,
                    "shape": str(call.shape),
                    "timings": _timings_as_json(call.timings),
                }
                for call in self.calls
            ],
        }


def geometric_mean(values: Iterable[float]) -> float:
    """The mean of ratios; NaN of none."""
    logarithms = [math.log(value) for value in values]
    if not logarithms:
        return math.nan
    return math.exp(math.fsum(logarithms) / len(logarithms))


def ratios(rows: Sequence[Row], peer: str | None = None) -> list[tuple[float, Row]]:
    """The ratios to a peer, or to the best one, of the rows that raced against it."""
    names = [(peer or row.best, row) for row in rows]
    return [(row.ratio_to(name), row) for name, row in names if name in row.peers]


def _row_as_json(row: Row) -> dict[str, Any]:
    return {
        "kernel": row.kernel,
        "kind": row.kind,
        "shape": str(row.shape),
        "traffic": row.traffic,
        "roofline": row.roofline,
        "timings": _timings_as_json(row.timings),
        "errors": dict(row.errors),
        "outside": row.outside,
        "texts": dict(row.texts),
        "failed": dict(row.failed),
        "rights": row.rights,
        # Derived, for readers of the file.
        "best": row.best,
        "ratio": row.ratio,
        "noise": row.noise,
        "share": row.share,
    }


def _timings_as_json(timings: Mapping[str, Timing]) -> dict[str, Any]:
    return {
        name: {"median": one.median, "spread": one.spread, "rounds": one.rounds}
        for name, one in timings.items()
    }
