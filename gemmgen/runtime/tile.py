"""A tile: how it is launched, which sizes it serves, what it costs; names in kernels.

Without torch or triton: the generator reckons and names with the same.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from . import sides

ANY = math.inf
FILL = -1  # as many parts of K as there are SMs for; up to 4 * FILL: so many times more
GROUP_M = 8  # of most tiles; 4 to 16 hardly differ on square shapes
ROWS = 8  # that a prediction does not tell apart: sides of tiles are multiples of it

# Share of SMs' turns that have a tile in full waves, which rows of a table may ask for.
FULL = 0.9

ASYNCHRONOUS = range(90, 120)  # sm whose units read A and B in shared memory

# Of a part with FILL, half as many with 2 * FILL, one with 4 * FILL.
MIN_K_BLOCKS_PER_SPLIT = 4

# Schedules whose programs go from tile to tile, as many as there are SMs for each part.
WALKING = ("persistent", "warp_specialized")

# What torch and Triton call types, by the names that users know.
TYPE_NAMES = {
    "fp16": ("float16", "float16"),
    "bf16": ("bfloat16", "bfloat16"),
    "fp32": ("float32", "float32"),
    "fp64": ("float64", "float64"),
    "fp8_e4m3": ("float8_e4m3fn", "float8e4nv"),
    "fp8_e5m2": ("float8_e5m2", "float8e5"),
    "int8": ("int8", "int8"),
}


def cdiv(size: int, step: int) -> int:
    """Return size / step, rounded up. Triton's own takes 3 us of CPU."""
    return -(-size // step)


class Work(NamedTuple):
    """What a launch makes a GPU do, before it is said how fast that is."""

    blocks: int  # of K, of a tile or of a part of one
    turns: int  # tiles, or parts of tiles, of one SM
    rounds: int  # in which these come, as many at a time as an SM runs programs
    memory: int  # bytes that memory gives and takes, each once
    read: int  # bytes that all SMs read through L2,
    lines: float  # bytes of these that lie in two of its lines
    sectors: float  # bytes of these that lie in five of its sectors
    filled: int  # bytes of zeros that descriptors fill in beyond a matrix
    sums: int  # bytes of the sums in which the parts of one tile meet; 0 if K is whole
    products: int  # multiply-adds of all tiles, what lies beyond a matrix included


class Rates(NamedTuple):
    """How large elements are, and how fast a GPU is, fitted to measured times."""

    element: int  # bytes of one of A or B
    result: int  # bytes that are stored and loaded for one of C, operands [m, n] too
    wait: float  # us until memory answers
    memory: float  # bytes a us from memory
    l2: float  # bytes a us through L2
    zeros: float  # bytes a us that descriptors fill in
    lines: float  # times as long that 128 bytes take from two lines of L2
    sectors: float  # times as long that they take from five sectors
    meet: float  # us for the parts of K to meet, if there are several
    sums: float  # bytes a us of their sums
    beside: float  # part of its time that a program takes if it runs beside another
    powered: float  # multiply-adds a us that power allows in the long run
    carried: float  # bytes a us through L2 that it allows instead
    cool: float  # us for which it allows more, before clocks fall


class Tile(NamedTuple):
    """A tile m x n x k, the schedule that computes it, and how it is launched.

    It serves GPUs from `sm` on with so much `shared` memory, and sizes up to M, N, K.
    With `rates` it was timed. If it has `from_rows`, it serves a layer of these very N
    and K, for so many rows up to M. If it has `from_side`, it stands for tiles whose
    `shared_axis` is so long up to its own, and has what they take at most. Of several
    `ctas` it is the tile of a cluster, which each has an equal part of.
    """

    schedule: str
    sm: int  # 10 * major + minor of the compute capability
    M: float  # rows of C at most; this and the next two may be ANY
    N: float  # columns of C
    K: float  # columns of A
    m: int  # rows of a tile of C
    n: int  # its columns
    k: int  # columns of A that are multiplied at a time
    split_k: int  # parts of K, 1 or more; or FILL, 2 * FILL or 4 * FILL
    stages: int  # blocks of A and B that are loaded or multiplied at a time
    warps: int  # that multiply; gemv: that add
    shared: int = 0  # bytes of shared memory that a block takes on `sm`
    block: float = 0  # us for a block of K
    once: float = 0  # us for a tile, beside its blocks
    launch: float = 0  # us for a launch
    resident: int = 1  # programs that an SM runs at a time
    rates: Rates | None = None
    group_m: int = GROUP_M  # tiles of a column in L2's order, see `swizzle`
    waves: float = 0  # FULL: only for M and N whose waves, a tile an SM, are that full
    from_rows: int = 0  # of a layer; 0 for a tile that serves any sizes up to its own
    from_side: int = 0  # the least of those that it stands for; 0: it is a tile itself
    deep: tuple[int, ...] = ()  # up to each side they have a stage more
    ctas: int = 1  # of a cluster: 2 share what they load of one side
    starts: tuple[int, int] = (sides.LINE,) * 2  # bytes: alignment of A's, B's rows

    def tiles(self, M: int, N: int) -> int:
        """Return the number of tiles."""
        return cdiv(M, self.m) * cdiv(N, self.n)

    def fits(self, N: int, K: int) -> bool:
        """Return whether it serves so many columns, and so long sums."""
        if self.from_rows:
            return self.N == N and self.K == K
        return self.N >= N and self.K >= K

    def fills(self, M: int, N: int, sms: int) -> bool:
        """Return whether so many of the SMs have a tile, the last wave included."""
        tiles = self.tiles(M, N)
        return tiles >= self.waves * sms * cdiv(tiles, sms)

    def runs_on(self, sm: int, room: int) -> bool:
        """Return whether a GPU is new enough and a block of it has the `room` in bytes.

        Units from Hopper on multiply from shared memory, and need room for two blocks
        more: one that older units have in registers, in tf32x3 part of another.
        """
        needed = self.shared  # of stages - 1 blocks
        if self.stages > 1 and sm in ASYNCHRONOUS and self.sm not in ASYNCHRONOUS:
            needed = needed * (self.stages + 1) // (self.stages - 1)
        return sm >= self.sm and needed <= room

    def splits(self, tiles: int, K: int, sms: int) -> int:
        """Return in how many parts K is cut, for so many tiles and SMs; 1 at least."""
        if self.split_k > 0:
            return self.split_k
        times = self.split_k // FILL  # 1, 2 or 4
        if self.schedule in WALKING:  # in so many turns
            wanted = sms // max(1, -(-tiles // times))
        else:
            wanted = times * sms // max(1, tiles)
        if wanted <= 1:
            return 1
        return max(1, min(wanted, cdiv(K, MIN_K_BLOCKS_PER_SPLIT // times * self.k)))

    def work(self, M: int, N: int, K: int, sms: int, rates: Rates) -> Work:
        """Return what sizes M, N, K make a GPU of so many SMs do.

        `cdiv` is spelled out: a choice among all tiles waits for its calls.
        """
        high, wide = -(-M // self.m), -(-N // self.n)
        tiles = high * wide
        sms //= self.ctas
        parts = self.splits(tiles, K, sms)
        turns = -(-tiles * parts // sms)
        line = rates.element * K  # bytes of a row of A, or of B's transpose
        held = high * N + wide * M  # rows of A and B that lie in a matrix
        blocks = -(-K // (self.k * parts))
        rounds = -(-turns // self.resident)
        memory = line * (M + N) + rates.result * M * N
        filled = line * (tiles * (self.m + self.n) - held)
        sums = 4 * self.m * self.n * parts if parts > 1 else 0
        products = tiles * self.m * self.n * K
        read, two, five = line * held, 0.0, 0.0
        if min(self.starts) < sides.LINE:
            (two_a, five_a), (two_b, five_b) = map(sides.cut, self.starts)
            two = line * (wide * M * two_a + high * N * two_b)
            five = line * (wide * M * five_a + high * N * five_b)
        through = memory, read, two, five, filled
        return Work(blocks, turns, rounds, *through, sums, products)

    def members(self) -> list["Tile"]:
        """Return the tiles that it stands for: itself, or one for each side."""
        if not self.from_side:
            return [self]
        rows = self.shared_axis == "m"
        most = self.m if rows else self.n
        found = sides.stood_for(self.from_side, most, self.warpgroups, rows)
        alone = self._replace(from_side=0, deep=())
        return [
            alone._replace(
                m=side if rows else self.m,
                n=self.n if rows else side,
                split_k=self.split_k if in_parts else 1,
                stages=self.stages + sum(side <= deep for deep in self.deep),
                block=self.block * sides.share(side, most, self.from_side),
            )
            for side, in_parts in found
        ]

    def predicted(self, M: int, N: int, K: int, sms: int) -> float:
        """Return the microseconds that a timed tile takes, for up to `ROWS` alike."""
        assert self.rates is not None
        work = self.work(cdiv(M, ROWS) * ROWS, N, K, sms, self.rates)
        return duration(work, self.block, self.once, self.launch, self.rates)

    def at_least(self, M: int, N: int, K: int, sms: int) -> float:
        """Return microseconds that `predicted` is never less than."""
        tiles = -(-M // self.m) * -(-N // self.n)
        parts = self.splits(tiles, K, sms) if self.split_k != 1 else 1
        rounds = -(-tiles * parts // (sms // self.ctas * self.resident))
        blocks = -(-K // (self.k * parts))
        return self.launch + rounds * (blocks * self.block + self.once)

    @property
    def warpgroups(self) -> int:
        """Groups of four warps that share a tile."""
        return self.warps // 4

    @property
    def cut_axis(self) -> str:
        """The axis along which each of these has its slice: n, if that can be cut."""
        return "n" if sides.cuts(self.n, self.warpgroups) else "m"

    @property
    def shared_axis(self) -> str:
        """The other axis, along which all have the whole of it."""
        return "m" if self.cut_axis == "n" else "n"

    def boxes(
        self, axes: Sequence[str], shared: str = "", beside: bool = False
    ) -> tuple[tuple[int, ...], ...]:
        """Return the rows and columns in which a tensor of two axes is moved.

        All of a tile's, or of each group of warps where those have parts along an axis
        `shared`: then in boxes as large as the smallest piece but one of the other axis
        (along K: `box`), and what is left in a second box. Pieces of tensors `beside` A
        and B are parts that are stored at a time.
        """
        most = sides.most_columns(self.warpgroups)
        if beside and shared:
            most = sides.most_stored(self.m, self.n, shared == "n", self.ctas)
        first, last = [], []
        along_k = axes[-1] == "k"
        for axis in axes:
            side: int = getattr(self, axis)
            if axis == shared:
                side //= self.warpgroups
            cut = shared and axis not in ("k", shared)
            *larger, least = sides.pieces(side, most) if cut else (side,)
            largest = larger[-1] if larger else least
            first.append(sides.box(side, most) if cut and along_k else largest)
            last.append(least)
        both = tuple(first), tuple(last)
        return both[: 1 + (first != last)]

    @property
    def options(self) -> dict[str, int]:
        """What Triton is told: consumers of a specialized kernel have four warps."""
        if self.schedule == "warp_specialized":
            return {"num_warps": 4, "num_ctas": self.ctas}
        return {"num_warps": self.warps, "num_stages": self.stages}


def duration(work: Work, block: Any, once: Any, launch: Any, rates: Rates) -> Any:
    """Return the microseconds of such work; also of arrays, all of one shape.

    Loops, memory and L2 go on at a time, and all draw power: the slowest counts, and
    near a tie the others too, as the root of the sum of cubes has it. Clocks fall when
    power has been at its limit for a while.
    """
    alone = work.rounds + rates.beside * (work.turns - work.rounds)
    loop = alone * (work.blocks * block + once)
    memory = rates.wait + work.memory / rates.memory
    read = work.read + work.lines * (rates.lines - 1)
    read += work.sectors * (rates.sectors - 1)
    l2 = read / rates.l2 + work.filled / rates.zeros
    drawn = work.products / rates.powered + work.read / rates.carried - rates.cool
    power = (drawn > 0) * drawn
    cubes = loop * loop * loop + memory * memory * memory + l2 * l2 * l2
    together = (cubes + power * power * power) ** (1 / 3)
    return launch + together + (work.sums > 0) * rates.meet + work.sums / rates.sums


# Schedules that launch the kernel of another.
KERNELS = {"split_k": "tiled"}

# A kernel's constants, and what of the tile they are.
CONSTANTS = {
    "BLOCK_M": "m",
    "BLOCK_N": "n",
    "BLOCK_K": "k",
    "GROUP_M": "group_m",
    "STAGES": "stages",
    "NUM_WGS": "warpgroups",
}


def stride_name(tensor: str, axis: str) -> str:
    """`stride_am` for a tensor of a one-letter name, `stride_bias_n` for others."""
    return f"stride_{tensor}{axis}" if len(tensor) == 1 else f"stride_{tensor}_{axis}"
