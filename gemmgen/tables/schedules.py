"""Table of schedules: what each is, what its kernel takes, where it can run."""

from collections.abc import Iterable
from dataclasses import dataclass

from gemmgen.tables.dtypes import MMAS

_TILE = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")
_ONE_A_TILE, _ONE_A_PART, _ONE_AN_SM, _ONE_A_ROW = GRIDS = (
    "one_a_tile", "one_a_part", "one_an_sm", "one_a_row",
)  # fmt: skip


@dataclass(frozen=True)
class Schedule:
    """One way to run the product; `templates/<name>.py.jinja` is its program.

    `grid` is the function of the table's module that tells how many programs a launch
    has, `constants` are the kernel's compile-time parameters beside the index type.
    `described` names the tensors that it takes as tensor descriptors: `inputs` (A and
    B), `operands` (those indexed [m, n]) and `results`; all others are pointers.
    `splits` says that K may be cut into parts, which meet in a workspace; `kernel_of`
    names the schedule whose kernel it launches, if it has none of its own;
    `transposes` that B's columns are the rows of what is multiplied, `streams` that
    rows of A go through all of B with no tensor core and no ring, `loops` that programs
    go from tile to tile. Warps of a `specialized` kernel, which is written in Gluon,
    have different parts. `unit` is the only unit of a target that it is written for.
    """

    name: str
    title: str
    grid: str
    constants: tuple[str, ...] = _TILE
    described: frozenset[str] = frozenset()
    splits: bool = False
    kernel_of: str = ""
    transposes: bool = False
    streams: bool = False
    loops: bool = False
    specialized: bool = False
    unit: str | None = None

    @property
    def file(self) -> str:
        """The file of its kernel, which is named like a schedule."""
        return self.kernel_of or self.name

    @property
    def kernel_suffix(self) -> str:
        """What the kernel's name adds to that of the launcher."""
        return "_kernel" if self.file == FALLBACK else f"_{self.file}_kernel"


FALLBACK = "tiled"
"""The schedule that serves every call."""

SCHEDULES: dict[str, Schedule] = {
    row.name: row
    for row in (
        Schedule(FALLBACK, "one output tile per program", _ONE_A_TILE),
        Schedule(
            "tma", "one output tile per program, descriptors", _ONE_A_PART,
            described=frozenset({"inputs"}), splits=True, transposes=True,
        ),
        Schedule(
            "persistent", "one program per SM, tiles in a loop", _ONE_AN_SM,
            described=frozenset({"inputs", "results"}), loops=True,
        ),
        Schedule(
            "split_k", "K cut into parts, reduced in order", _ONE_A_PART, splits=True,
            kernel_of=FALLBACK,
        ),
        Schedule(
            "warp_specialized", "producer and consumer warps", _ONE_AN_SM,
            constants=(*_TILE, "STAGES", "NUM_WGS"),
            described=frozenset({"inputs", "operands", "results"}),
            transposes=True, loops=True, specialized=True, unit="wgmma",
        ),
        Schedule(
            "gemv", "rows times the matrix, no tensor core", _ONE_A_ROW,
            constants=("BLOCK_N", "BLOCK_K"), streams=True,
        ),
    )
}  # fmt: skip


def by_file(schedules: Iterable[str]) -> dict[str, list[str]]:
    """Schedules by the files that their kernels are in."""
    found = dict[str, list[str]]()
    for name in schedules:
        found.setdefault(SCHEDULES[name].file, []).append(name)
    return found


def described(schedule: str, kind: str) -> frozenset[str]:
    """The roles of the tensors that a schedule takes through descriptors.

    Specialized consumers of tf32 store their results from registers: there, elements of
    4 bytes fill whole sectors, and a tile of them would take the room of two stages.
    """
    row = SCHEDULES[schedule]
    if row.specialized and MMAS[kind].one_k_major:
        return row.described - {"results"}
    return row.described


def transposes(schedule: str, kind: str, layout: str) -> bool:
    """Whether B's columns are the rows of what a schedule multiplies.

    Of TT in tf32, A lies along M; wgmma takes such a matrix as the left side alone.
    """
    held = from_registers(schedule, kind, layout)
    return SCHEDULES[schedule].transposes and not (held and layout == "TT")


def from_registers(schedule: str, kind: str, layout: str) -> bool:
    """Whether what a schedule multiplies comes from registers on the left.

    In shared memory wgmma reads 4-byte elements along K alone (PTX ISA, wgmma), which
    one matrix of NN and of TT is not.
    """
    specialized = SCHEDULES[schedule].specialized
    return specialized and MMAS[kind].one_k_major and layout in ("NN", "TT")
