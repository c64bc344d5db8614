"""Producer and consumer warps; all matrices through descriptors."""

from collections.abc import Iterator
from itertools import product as every

from gemmgen.cost.tile import GROUP_M, Product, Tile
from gemmgen.schedules.base import (
    MOST_STAGES,
    Kernel,
    Size,
    k_blocks,
    not_by_descriptors,
)
from gemmgen.tables.schedules import from_registers, transposes

_NAME = "warp_specialized"
_SIZES: tuple[Size, ...] = (
    *((256, 128, 1, 8, 1), (128, 128, 1, 8, 1), (128, 128, 1, 4, 1)),
    (128, 192, 1, 12, 1),
)
"""Where consumers share columns: where they share rows, m and n change places."""
_ALONG_K: tuple[Size, ...] = ((256, 128, 1, 8, 1), (128, 128, 1, 4, 1))
_HELD: tuple[Size, ...] = (
    (256, 128, 1, 8, 1),
    (128, 128, 2, 8, 1),
    (64, 128, 2, 8, 1),
)
"""The same of tf32, which reads both sides from shared memory or one from registers
(NT and NN, four shapes each, H200)."""


def why_not(kernel: Kernel) -> str | None:
    """It serves what wgmma reads from shared memory, the left side from registers."""
    mma = kernel.product.mma
    if mma.terms > 1:
        return f"{mma.name} splits its operands in registers, wgmma reads shared memory"
    if mma.one_k_major and kernel.layout == "TN":
        along_k = f"wgmma reads {mma.name} along K alone"
        return f"{along_k}, which neither matrix of layout TN is"
    return not_by_descriptors(kernel)


def sizes(product: Product) -> tuple[Size, ...]:
    """Those of two and three consumers."""
    kind, layout = product.kind, product.layout
    found = _SIZES
    if product.mma.one_k_major:
        found = _HELD if from_registers(_NAME, kind, layout) else _ALONG_K
    if transposes(_NAME, kind, layout):
        return found
    return tuple((n, m, k, warps, parts) for m, n, k, warps, parts in found)


def search(product: Product) -> Iterator[Tile]:
    """Tiles of one, two and three groups of consumers."""
    shapes = (
        *((256, 128, 8), (128, 128, 8), (64, 128, 8), (128, 256, 8)),
        *((128, 128, 4), (64, 128, 4), (256, 64, 4), (128, 64, 4), (64, 64, 4)),
        *((128, 192, 12), (64, 192, 12)),
    )
    turned = transposes(_NAME, product.kind, product.layout)
    for (m, n, warps), k in every(shapes, k_blocks(product, 1, 2)):
        sides = (m, n) if turned else (n, m)
        yield Tile(*sides, k, GROUP_M, MOST_STAGES, warps, _NAME)
