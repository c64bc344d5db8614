"""What a K block costs an SM, and what follows the last one, whatever the shape.

Pure arithmetic: physical limits from `targets`, constants measured as they say.
"""

import math
from dataclasses import dataclass
from functools import cache

from gemmgen.cost.resources import instruction, ring_blocks, sides, threads
from gemmgen.hardware.targets import Target
from gemmgen.schedules import schedule_of
from gemmgen.schedules.parts.tile import SECTOR, Product, Tile, cut
from gemmgen.tables.layouts import LAYOUTS

_SHARED_BYTES_PER_CLOCK = 128
"""What shared memory of an SM reads or writes (CUDA C++ Best Practices Guide)."""

_LANES = 128
"""Instructions that an SM finishes in a clock on fp32 values."""

_IN_STEP = 1.3
"""How much more L2 serves programs that stay in step: 14.8 against 11.4 TB/s (H200,
4096^3: 64x128 tiles in warp_specialized; 64x64, 64x128 and 128x128 in tma). Those of
one turn do, in any schedule: 15.4 TB/s with 32x64x128 in tma, 512 x 512 x 8192."""

_TWO_LINES, _FIVE_SECTORS = 1.8, 3.2
"""How many times as long L2 takes for 128 bytes of a row that lie in two of its lines,
in five sectors (benchmarks/speed/limits.md, "Rows that begin at 16 bytes")."""

_WHOLE, _ASYNCHRONOUS = 16, 4
"""Bytes that a thread loads at most, and at least to load them past its registers."""

_APART = 0.1e-9
"""Seconds of an SM to load elements of less than 16 bytes (bf16 NT, ten shapes with K
of 1023 to 3001, H200: 0.08 to 0.17)."""

_HELD = 64
"""Elements loaded one by one that a thread holds without spills (the same tiles: 96
take 2 times as long, 128 take 8)."""

_COLLISIONS = 2.05
"""How much longer multiply-adds take where B lies along K, as if the banks of shared
memory collided (ieee, 4096^3, H200: 6.34 ms NT, 3.09 NN, the same tile)."""

_TURNED = 0.29e-9
"""Seconds of an SM to turn an element over for a unit that reads along K alone (tf32
NN, 4096^3, tiled, H200: 1.57 to 1.65 ms with 128x64, 128x128 and 128x256, 3.01 with
64x128)."""

_DIVIDED, _THRICE = 0.02e-9, 0.35
"""Seconds of an SM to split an element in two, and what three products add to their own
time (tf32x3 NT, 4096^3, H200: 64x64 takes 216 ns longer than the unit for a K block,
64x128 260, 128x128 610)."""


_UNIT_ROWS = {"wgmma": 64, "tcgen05": 64, "mma": 16}
"""Rows that a tensor core multiplies at least."""


@dataclass(frozen=True)
class BlockCost:
    """Seconds that a K block keeps the unit, shared memory and L2 of an SM busy.

    The unit can start once operands are `prepared` in registers. A load has the time of
    `ahead` blocks to arrive in. `flops` run, `moved` bytes pass shared memory and
    `loaded` ones leave L2.
    """

    unit: float
    prepared: float
    shared: float
    l2: float
    ahead: int
    flops: int
    moved: int
    loaded: int

    @property
    def seconds(self) -> float:
        """The time of a block when no load is waited for."""
        return max(self.unit + self.prepared, self.shared, self.l2)

    @property
    def limit(self) -> str:
        """What it waits for: the unit, shared memory or L2."""
        if self.seconds == self.unit + self.prepared:
            return "unit"
        return "shared" if self.seconds == self.shared else "l2"


@cache
def block_cost(
    tile: Tile, product: Product, target: Target, starts: tuple[int, int], joint: bool
) -> BlockCost:
    """The cost of a K block of A and B.

    Rows of A and of B start at multiples of so many bytes, which pointers load at once:
    inside a sector, one more is read. `joint` says that programs stay in step. Blocks
    are written to shared memory once and read once.
    """
    rates, schedule = target.rates, schedule_of(tile)
    served = 0.0 if schedule.memory_bound else _served(tile, product, starts)
    tile = tile.of_cta
    rows, columns = sides(tile, product)
    by = instruction(tile, product, target)
    rows = max(rows, _UNIT_ROWS.get(by, 1))
    line = tile.k * product.bytes
    flops = 2 * rows * columns * tile.k * product.rights
    unit = flops / target.flops_per_clock[product.kind]
    if by == "fma":
        unit *= _fma_slowdown(tile, product)
    loaded = product.rows(tile.m, tile.n) * line
    read = product.rights * (rows + columns) * line
    moved = 0 if schedule.memory_bound else loaded + read
    if min(starts) < SECTOR:
        loaded = round(loaded * (1 + SECTOR / line))
    bandwidth = rates.l2_bandwidth * (_IN_STEP if joint else 1)
    width = math.gcd(_WHOLE, *(start // product.bytes for start in starts))
    if schedule.described or schedule.memory_bound:
        width = _WHOLE
    return BlockCost(
        unit / rates.clock,
        _preparing(tile, product, target, width, unit / rates.clock),
        moved / _SHARED_BYTES_PER_CLOCK / rates.clock,
        max(loaded / bandwidth, served / (_IN_STEP * rates.l2_bandwidth)) * target.sms,
        schedule.unrolled or _ahead(tile, product, target, width),
        flops,
        moved,
        loaded,
    )


def _served(tile: Tile, product: Product, starts: tuple[int, int]) -> float:
    """Bytes of a block; those that do not fill lines as many as L2 serves meanwhile.

    Of a CTA of a cluster, which shares them.
    """
    rows = 0.0
    for side, start in zip((tile.m, product.rights * tile.n), starts, strict=True):
        two, five = cut(start)
        rows += side * (1 + two * (_TWO_LINES - 1) + five * (_FIVE_SECTORS - 1))
    return rows / tile.ctas * tile.k * product.bytes


def _fma_slowdown(tile: Tile, product: Product) -> float:
    """How much longer multiply-adds take for what they read from shared memory.

    A thread has a square of the tile and reads its sides in pairs: 3.22 ms with 128x128
    and 8 warps (NN, 4096^3, H200), where multiply-adds alone take 2.8.
    """
    reads = 1 / math.sqrt(tile.m * tile.n / threads(tile))
    along_k = LAYOUTS[product.layout].b_transposed
    collides = along_k and not schedule_of(tile).by_fma
    return (1 + reads) * (_COLLISIONS if collides else 1)


def _ahead(tile: Tile, product: Product, target: Target, width: int) -> int:
    """K blocks whose loads are under way while one is multiplied."""
    if width * product.bytes < _ASYNCHRONOUS:
        return 0
    return ring_blocks(tile, product, target) - 1


def _preparing(
    tile: Tile, product: Product, target: Target, width: int, unit: float
) -> float:
    """Seconds that registers work on a K block before its `unit` seconds.

    wgmma reads tf32 along K alone: what lies otherwise is turned over, of a product
    split in three only the right block, since the left comes from registers anyhow.
    """
    seconds = 0.0
    if width * product.bytes < _WHOLE:
        elements = product.rows(tile.m, tile.n) * tile.k
        held = width * product.bytes < _ASYNCHRONOUS
        spilled = max(1.0, elements / (_HELD * threads(tile))) ** 3 if held else 1.0
        seconds += elements / width * spilled * _APART
    schedule = schedule_of(tile)
    if schedule.waits:
        return seconds + schedule.waits(tile, product, unit)
    if instruction(tile, product, target) == "wgmma":
        layout = LAYOUTS[product.layout]
        turned = schedule.transposes(tile, product)
        m = tile.m * layout.a_transposed
        n = tile.n * product.rights * (not layout.b_transposed)
        if product.mma.one_k_major:
            seconds += (m + n) * tile.k * _TURNED
        if product.mma.terms > 1:
            seconds += (m if turned else n) * tile.k * _TURNED
            seconds += product.rows(tile.m, tile.n) * tile.k * _DIVIDED
            seconds += _THRICE * unit
    return seconds


@cache
def epilogue_time(tile: Tile, product: Product, target: Target) -> float:
    """Seconds from a finished sum to its stored tile."""
    elements = tile.m * tile.n
    moved = max(product.out_bytes, product.tile_bytes) * elements
    computed = product.operations * elements / _LANES / target.rates.clock
    return moved / target.rates.store_bandwidth + computed
