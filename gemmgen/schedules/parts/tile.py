"""A tile, and the product that it is a part of, for all that reckons with them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from gemmgen.runtime.sides import IN_PIECES, LINE, SECTOR, cut, reused_buffers, share
from gemmgen.runtime.tile import ANY, FILL, FULL, GROUP_M, Rates, Work, duration
from gemmgen.runtime.tile import Tile as Launched
from gemmgen.tables.dtypes import MMAS, Mma

__all__ = [
    "FALLBACK", "FILL", "FULL", "GROUP_M", "LINE_BYTES", "MOST_OF_TILES", "MOST_STAGES",
    "SECTOR", "Launched", "Product", "Rates", "Tile", "Work", "cut", "duration",
    "nearest_fitting", "reused_buffers",
]  # fmt: skip

FALLBACK = "tiled"
"""The schedule that serves every call."""

MOST_STAGES = 12
"""Those of the deepest tiles: of few rows they have room, and use it (72 x 64)."""

MOST_OF_TILES = {
    **dict.fromkeys("mnk", 512),
    **{"group_m": 64, "stages": MOST_STAGES, "warps": 16, "split_k": 64},
}
"""What users may ask of a tile. An fp32 accumulator of 512 x 128 fills the register
file of an SM, and two stages of 128 rows of 512 fp16 its shared memory: a longer side
serves no GPU there is. 32 warps are 1024 threads with 64 registers each: too few."""

LINE_BYTES = LINE
"""A cache line: what a K block takes of each row, or a multiple of it."""


@dataclass(frozen=True)
class Product:
    """What is multiplied: storage bytes of an operand element, and the unit used.

    `kind` is a key of `Target.flops_per_clock`: a dtype's name, or for fp32 inputs the
    precision. `out_bytes` is the size of the largest result element, `tile_bytes` that
    of all buffers for results and operands [m, n] together, `vector_bytes` that of the
    largest operand [m] or [n], `matrix_bytes` and `result_bytes` those of all operands
    [m, n] and of all results together. `passed` counts operands, and results beyond the
    first. `operations` is what the epilogue computes for an element. A is multiplied
    with so many `rights`, each of which has its own sum. `own_bytes` are those of each
    result with a buffer of its own.
    """

    kind: str
    bytes: int
    out_bytes: int
    tile_bytes: int = 0
    layout: str = "NT"
    vector_bytes: int = 0
    matrix_bytes: int = 0
    result_bytes: int = 0
    passed: int = 0
    operations: int = 0
    rights: int = 1
    own_bytes: tuple[int, ...] = ()

    @property
    def mma(self) -> Mma:
        """How it is made."""
        return MMAS[self.kind]

    def rows(self, m: int, n: int) -> int:
        """Lines along K of all that is multiplied: of A, and of each right side."""
        return m + self.rights * n


@dataclass(frozen=True)
class Tile:
    """The tile of one program: sizes in elements, `stages` of the load ring, warps.

    `schedule` is the name of the one that computes it, in `split_k` parts of K. With
    `from_side` it stands for tiles whose `shared_side` is so long up to its own.
    Several `ctas` have an equal part each, a cluster.
    """

    m: int
    n: int
    k: int
    group_m: int
    stages: int
    warps: int
    schedule: str = FALLBACK
    split_k: int = 1
    from_side: int = 0
    ctas: int = 1

    @property
    def members(self) -> tuple["Tile", ...]:
        """The tiles that it stands for, the smallest first; most are their own."""
        if not self.from_side:
            return (self,)
        launched = self.launched.members()
        return tuple(
            replace(self, m=one.m, n=one.n, split_k=one.split_k, from_side=0)
            for one in launched
        )

    @property
    def shared_side(self) -> int:
        """The side of which groups of warps all have the whole."""
        found: int = getattr(self, self.launched.shared_axis)
        return found

    @property
    def stands_in_one(self) -> bool:
        """Whether it stands for tiles of which one wgmma multiplies that side."""
        return 0 < self.from_side < IN_PIECES

    def share(self, member: "Tile") -> float:
        """What part of the time of a block one of these takes for its own."""
        if not self.from_side:
            return 1.0
        axis = self.launched.shared_axis
        return share(getattr(member, axis), self.shared_side, self.from_side)

    @property
    def warpgroups(self) -> int:
        """Groups of four warps, one at least: what wgmma multiplies with."""
        return max(1, self.warps // 4)

    @cached_property
    def launched(self) -> Launched:
        """The tile as launchers have it, for any GPU and sizes."""
        sides = (self.m, self.n, self.k)
        how = (self.split_k, self.stages, self.warps)
        tile = Launched(self.schedule, 0, ANY, ANY, ANY, *sides, *how)
        return tile._replace(
            group_m=self.group_m, from_side=self.from_side, ctas=self.ctas
        )

    @property
    def of_cta(self) -> "Tile":
        """What one CTA of a cluster has of it: its part of the side that is cut."""
        side = self.launched.cut_axis
        own = {side: getattr(self, side) // self.ctas}
        return replace(self, ctas=1, **own) if self.ctas > 1 else self


def nearest_fitting(tile: Tile, fits: Callable[[Tile], bool]) -> Tile | None:
    """The nearest tile that takes less room.

    That has fewer stages, or is halved until it fits, and then as deep as before.
    """
    wanted, tile = tile.stages, replace(tile, stages=min(tile.stages, 2))
    while not fits(tile):
        if tile.k > 32:
            tile = replace(tile, k=tile.k // 2)
        elif max(tile.m, tile.n) > 16:
            side = "m" if tile.m >= tile.n else "n"
            tile = replace(tile, **{side: getattr(tile, side) // 2})
        else:
            return None
    deeper = (replace(tile, stages=stages) for stages in range(wanted, 0, -1))
    return next(tile for tile in deeper if fits(tile))
