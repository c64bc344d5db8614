"""The facts of an argument, as plain data: times in seconds, memory in bytes.

They are filled in by `argument`, told by `text`, drawn by `plot`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class TableRow:
    """A row of a module's table: its `number`, from 1, `of` how many, and its tile.

    It serves sizes up to `limits`, None being any; from `least` rows on, that of a
    layer, whose N and K are just these.
    """

    number: int
    of: int
    limits: Mapping[str, int | None]
    tile: str
    source: str
    least: int | None = None


@dataclass(frozen=True)
class Choice:
    """What serves the shape, if the tensors are contiguous and aligned.

    `row` is None where Triton's autotuner chooses at run time. `detours` are the rows
    that serve other calls of this shape, by what makes them others.
    """

    tile: str
    source: str
    row: TableRow | None
    detours: Mapping[str, TableRow]


@dataclass(frozen=True)
class Offer:
    """A schedule: why it cannot serve, or its best tile here and the tile's time.

    The best is the fastest of those that were measured, if any were.
    """

    schedule: str
    title: str
    why_not: str | None
    tile: str | None = None
    seconds: float | None = None
    measured: float | None = None


@dataclass(frozen=True)
class Block:
    """A K block on an SM: how long it keeps each part busy, and which of them limits.

    `flops` run on `unit`, `moved` bytes pass shared memory, `loaded` ones leave L2.
    `prepared` is what registers do before the unit can start. `row_starts` has of each
    matrix how many bytes its rows begin at multiples of, up to those of a line.
    """

    unit: str
    flops: int
    flops_per_clock: int
    moved: int
    loaded: int
    row_starts: Mapping[str, int]
    unit_seconds: float
    prepared: float
    shared_seconds: float
    l2_seconds: float
    seconds: float
    limit: str


@dataclass(frozen=True)
class Depth:
    """What a ring of so many `stages` takes, and the time it would give."""

    stages: int
    shared_memory: int
    fits: bool
    resident: int
    seconds: float


@dataclass(frozen=True)
class Stages:
    """The latency to hide, and what hides it.

    Stages are sized for `planned`, the `latency` under the load that such tiles make.
    `needed` ring blocks hide it, in `needed_stages`; the tile has `stages`, in `ring`
    blocks, of which `ahead` are loaded while one is multiplied, and `most` fit.
    """

    latency: float
    planned: float
    together: int
    needed: int
    needed_stages: int
    stages: int
    ring: int
    ahead: int
    most: int
    hidden: bool
    depths: tuple[Depth, ...]


@dataclass(frozen=True)
class Occupancy:
    """What a program takes of an SM, and how many fit by each limit.

    `next_stage` is the shared memory with one stage more, against `limit` for a block.
    """

    shared_memory: int
    limit: int
    next_stage: int
    per_sm: int
    reserved: int
    registers: int
    accumulator: int
    threads: int
    fitting: Mapping[str, int]
    resident: int
    limited_by: str
    looping: bool


@dataclass(frozen=True)
class Waves:
    """Programs over SMs: in `turns` waves, `together` on an SM at a time.

    In the last wave `last` SMs work; `busy` is the share of all waves that is used,
    `inside` that of the tiles' area which is inside the result. Where `ctas` share a
    tile, these are clusters of so many SMs.
    """

    tiles: int
    parts: int
    programs: int
    sms: int
    ctas: int
    turns: int
    together: int
    last: int
    idle: float
    busy: float
    inside: float


@dataclass(frozen=True)
class Roofline:
    """FLOP, the bytes that must be moved, and the two roofs.

    `l2_traffic` is what tiles load, mostly from L2; `traffic` what memory moves.
    """

    kind: str
    flops: int
    bytes: int
    intensity: float
    ridge: float
    peak: float
    bandwidth: float
    compute_seconds: float
    memory_seconds: float
    seconds: float
    binds: str
    traffic: float
    l2_traffic: int


@dataclass(frozen=True)
class Prediction:
    """launch + outside + max(loop, memory), and `measured`, if the shape was.

    `by_costs` is what launchers predict of a tile whose costs they know.
    """

    launch: float
    outside: float
    loop: float
    memory: float
    binds: str
    seconds: float
    flops_per_second: float
    share: float
    measured: float | None
    by_costs: float | None


@dataclass(frozen=True)
class Candidate:
    """A tile that could serve: its predicted time, and its measured one, if any.

    How many of it there are, in how many parts of K each, in how many waves over the
    SMs, and the K blocks of a part.
    """

    tile: str
    tiles: int
    parts: int
    waves: int
    blocks: int
    seconds: float
    measured: float | None
    chosen: bool


@dataclass(frozen=True)
class Served:
    """What serves so many rows of A at the shape's N and K.

    The predicted time, the roofline's, and that of the tile, if it was measured.
    """

    rows: int
    tile: str
    schedule: str
    warps: int
    seconds: float
    roofline: float
    measured: float | None


@dataclass(frozen=True)
class Sources:
    """Where the numbers come from: whose rates, and the tuning file, if there is one.

    `rates_from` is the file of the rates: one that calibration wrote, or the table;
    `measured_here` says that it has times of this very shape.
    """

    gpu: str
    rates: Mapping[str, float]
    rates_from: str
    tuning: str | None
    measured_here: bool


@dataclass(frozen=True)
class Argument:
    """Why a kernel runs a shape as it does on a target.

    `by_rows`, where it is asked for, has what serves other numbers of rows.
    """

    kernel: str
    shape: str
    target: str
    choice: Choice
    schedules: tuple[Offer, ...]
    block: Block
    stages: Stages
    occupancy: Occupancy
    waves: Waves
    roofline: Roofline
    prediction: Prediction
    candidates: tuple[Candidate, ...]
    candidates_in_all: int
    sources: Sources
    by_rows: tuple[Served, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The facts as plain data."""
        return asdict(self)
