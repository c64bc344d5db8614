"""Why a schedule cannot serve a kernel on a target: one function a schedule.

What only a call can tell, such as the alignment of a row, is decided by the launcher.
"""

from collections.abc import Callable
from dataclasses import dataclass

from gemmgen.cost.tile import Product
from gemmgen.hardware.targets import Target
from gemmgen.tables.layouts import LAYOUTS
from gemmgen.tables.schedules import SCHEDULES


@dataclass(frozen=True)
class Kernel:
    """What a reason may depend on."""

    layout: str
    product: Product
    target: Target


def why_not(schedule: str, kernel: Kernel) -> str | None:
    """The reason why `schedule` cannot serve the kernel, in words, or None."""
    row, target = SCHEDULES[schedule], kernel.target
    if row.described and not target.tensor_maps:
        return f"{schedule} needs sm_90, this is {target.name}"
    if row.unit and row.unit != target.unit:
        return f"{schedule} is written for sm_90"
    return _REASONS[schedule](kernel)


def _always(kernel: Kernel) -> None:
    return None


def _in_parts(kernel: Kernel) -> str | None:
    if kernel.product.mma.accumulator_words > 1:
        return "the parts of a split K are summed in fp32, which fp64 exceeds"
    return None


def _through_descriptors(kernel: Kernel) -> str | None:
    if kernel.product.mma.unit != "matrix":
        return (
            f"{_spoken(kernel)} is multiplied from registers, where blocks that "
            "descriptors load only take room"
        )
    if kernel.target.unit == "tcgen05" and kernel.product.mma.terms > 1:
        return "tf32x3 splits its operands in registers, which tcgen05 reads none from"
    along_k = not kernel.product.mma.one_k_major or kernel.layout == "NT"
    if kernel.target.unit == "tcgen05" and not along_k:
        return f"tcgen05 reads tf32 along K alone, which layout {kernel.layout} is not"
    return None


def _specialized(kernel: Kernel) -> str | None:
    if kernel.product.mma.terms > 1:
        return "tf32x3 splits its operands in registers, wgmma reads shared memory"
    if kernel.product.mma.one_k_major and kernel.layout == "TN":
        return "wgmma reads tf32 along K alone, which neither matrix of layout TN is"
    return _through_descriptors(kernel)


def _streams_rows(kernel: Kernel) -> str | None:
    if not LAYOUTS[kernel.layout].b_transposed:
        return f"gemv streams B along K; in layout {kernel.layout} it lies along N"
    return None


def _spoken(kernel: Kernel) -> str:
    return kernel.product.mma.title or kernel.product.kind


_REASONS: dict[str, Callable[[Kernel], str | None]] = {
    "tiled": _always,
    "tma": _through_descriptors,
    "persistent": _through_descriptors,
    "split_k": _in_parts,
    "warp_specialized": _specialized,
    "gemv": _streams_rows,
}
