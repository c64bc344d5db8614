"""`Schedule`: all that sets one apart, as its module says it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gemmgen.hardware.targets import Rates, Target
from gemmgen.runtime.tile import KERNELS
from gemmgen.schedules.parts.memory import (
    MOST_ACCUMULATED,
    registers_by_pointers,
    threads_of,
)
from gemmgen.schedules.parts.tile import FALLBACK, Product, Tile

TILE = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")

Size = tuple[int, int, int, int, int]
"""m, n, blocks of 128 bytes along K, warps, split_k."""

_LEAST_SIDE = 16
"""What a tensor core multiplies at least."""
_EXPOSED = 0.3
"""Share of a tile's own overhead that programs beside it on the SM do not hide."""


@dataclass(frozen=True)
class Kernel:
    """What a reason against a schedule may depend on."""

    layout: str
    product: Product
    target: Target


@dataclass(frozen=True)
class Pause:
    """What the unit may rest for between two tiles of an SM, in seconds.

    A tile's `epilogue`, its `loop` of multiplications; `together` programs are on the
    SM at a time.
    """

    epilogue: float
    loop: float
    together: int


def between_programs(tile: Tile, rates: Rates, pause: Pause) -> float:
    """Programs that take one tile each rest for the whole of what is outside its loop.

    Unless others are on the SM, which hide most.
    """
    rest = rates.tile + pause.epilogue
    return rest * (1.0 if pause.together == 1 else _EXPOSED)


def _never(kind: str, layout: str) -> bool:
    return False


def _not_turned(tile: Tile, product: Product) -> bool:
    return False


def _by_sides(kind: str, layout: str) -> str:
    return ""


def _none(kind: str) -> frozenset[str]:
    return frozenset()


def _no_fault(tile: Tile, product: Product) -> None:
    return None


def _no_spill(tile: Tile, product: Product) -> bool:
    return False


def _numbers(tile: Tile) -> set[int]:
    return {tile.m, tile.n, tile.k, tile.warps}


def too_small(tile: Tile) -> str | None:
    """What is wrong with a tile that no tensor core multiplies, or None."""
    small = min(tile.m, tile.n, tile.k) < _LEAST_SIDE
    return f"has a side under {_LEAST_SIDE}" if small else None


def _one_tile(product: Product) -> int:
    return 1


def _alone(tile: Tile) -> bool:
    return False


def _most(tile: Tile, product: Product) -> int:
    return MOST_ACCUMULATED


def _once(tile: Tile) -> int:
    return 1


def _one_pass(tile: Tile, product: Product, sizes: tuple[int, int, int]) -> int:
    return 1


def _ramp(rates: Rates) -> float:
    return rates.ramp


@dataclass(frozen=True)
class Schedule:
    """One way to run the product; `templates/<name>.py.jinja` is its program.

    `order` is its place in lists and, where two tiles are as good, before others.
    `constants` are the kernel's compile-time parameters beside the index type.
    `described` names the tensors that it takes as tensor descriptors: `inputs` (A and
    B), `operands` (those indexed [m, n]) and `results`; all others are pointers.

    `splits` says that K may be cut into parts, which meet in a workspace; `persistent`
    that programs go from tile to tile; `memory_bound` that a matrix streams through
    with no tensor core and no ring, `unrolled` blocks of it loaded at a time. Warps of
    a `specialized` kernel have different parts; one `by_fma` has blocks in shared
    memory as multiply-adds read them, so that no banks collide. Both are in Gluon.
    `unit` is the only unit of a target that it is written for. Without `auto` it is for
    kernels whose spec names it.
    """

    name: str
    title: str
    order: int
    why_not: Callable[[Kernel], str | None]
    """Why it cannot serve a kernel that the fields below allow, or None."""
    sizes: Callable[[Product, Target], tuple[Size, ...]]
    """The tiles that `tiles: auto` considers: what won some shape when timed.

    All were timed on an H200 (bf16 NT, 22 shapes, 4096^3 to one row); those that a
    neighbour replaces are left out, and those that spill with some Triton.
    """
    search: Callable[[Product], Iterator[Tile]]
    """The tiles that `gemmgen tune` times, with the most stages worth a try."""
    shared_memory: Callable[[Tile, Product, Target], int]
    """Bytes of shared memory of a program, never less than the compiler's."""

    title_of_splits: str = ""
    """The title of its kernel where K may come in splits."""
    constants: tuple[str, ...] = TILE
    described: frozenset[str] = frozenset()
    splits: bool = False
    persistent: bool = False
    memory_bound: bool = False
    unrolled: int = 0
    specialized: bool = False
    by_fma: bool = False
    unit: str | None = None
    auto: bool = True

    by_pointers: Callable[[str], frozenset[str]] = _none
    """Of products of a kind: what comes through pointers though it is `described`."""
    transposes: Callable[[Tile, Product], bool] = _not_turned
    """Whether B's columns are the rows of what is multiplied."""
    shared_axis: Callable[[str, str], str] = _by_sides
    """The axis that groups of warps cut, by kind and layout; "" where sides say it."""
    from_registers: Callable[[str, str], bool] = _never
    """Whether what is multiplied comes from registers on the left, by the same."""

    composes: Callable[[str, str], bool] = _never
    """Whether the side that groups of warps do not share may be the sum of several."""

    stands_for: Callable[[Tile], bool] = _alone
    """Whether a tile may stand for lower ones, whose costs follow from its own."""

    misshapen: Callable[[Tile], str | None] = too_small
    """What is wrong with the sides or the warps of a tile, or None."""
    powers_of_two: Callable[[Tile], set[int]] = _numbers
    """Those of a tile's numbers that must be."""
    why_not_compiled: Callable[[Tile, Product], str | None] = _no_fault
    """Why a kernel cannot be compiled with a tile, or None."""
    spills: Callable[[Tile, Product], bool] = _no_spill
    """Whether a tile that would do for others is known to spill."""

    registers: Callable[[Tile, Product], int] = registers_by_pointers
    """32-bit registers of a thread: what the compiler gives, without an epilogue."""
    most_accumulated: Callable[[Tile, Product], int] = _most
    """Registers of a thread that a sum may take; the rest is for the epilogue."""
    threads: Callable[[Tile], int] = threads_of
    """Threads of a program."""
    spare_tiles: Callable[[Product], int] = _one_tile
    """Tiles of values that registers hold beside a large accumulator."""

    waits: Callable[[Tile, Product, float], float] | None = None
    """Seconds for which the unit, which works on a block for so many, waits for its
    warps to load their side of it; None where Triton sees to that."""
    between_tiles: Callable[[Tile, Rates, Pause], float] = between_programs
    """Seconds that the unit rests between two tiles of an SM."""
    last_epilogues: Callable[[Tile], int] = _once
    """For how many epilogues the last tile of an SM takes."""
    passes: Callable[[Tile, Product, tuple[int, int, int]], int] = _one_pass
    """How often a matrix streams through, for M, N, K: more than once is for what has
    no tensor core to multiply a block with all of the other matrix."""
    ramp: Callable[[Rates], float] = _ramp
    """Seconds that filling and draining memory's queues takes."""

    @property
    def file(self) -> str:
        """The file of its kernel, which is named like a schedule."""
        return KERNELS.get(self.name, self.name)

    @property
    def in_gluon(self) -> bool:
        """Whether its kernel is written in Gluon, where layouts are its own."""
        return self.specialized or self.by_fma

    @property
    def kernel_suffix(self) -> str:
        """What the kernel's name adds to that of the launcher."""
        return "_kernel" if self.file == FALLBACK else f"_{self.file}_kernel"

    @property
    def needs_aligned(self) -> bool:
        """Whether its tiles are for tensors that descriptors can describe.

        What memory bounds needs none, but the other pointer kernels would take its
        calls from rows for tensors that are not.
        """
        return bool(self.described) or self.memory_bound
