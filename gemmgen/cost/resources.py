"""What a tile takes of a target: shared memory, registers, the unit that multiplies.

What sets a schedule apart is in its module; here is what is asked of all alike.
"""

from functools import cache

from gemmgen.hardware.targets import Target
from gemmgen.schedules import schedule_of
from gemmgen.schedules.parts import memory
from gemmgen.schedules.parts.memory import accumulator_registers, unit_of
from gemmgen.schedules.parts.tile import Product, Tile


def sides(tile: Tile, product: Product) -> tuple[int, int]:
    """Rows and columns of what is multiplied: n and m where that is the transpose."""
    turned = schedule_of(tile).transposes(tile, product)
    return (tile.n, tile.m) if turned else (tile.m, tile.n)


def instruction(tile: Tile, product: Product, target: Target) -> str:
    """The unit that multiplies the tile: fma, mma, wgmma or tcgen05."""
    if schedule_of(tile).memory_bound:
        return "fma"
    return unit_of(sides(tile, product)[0], tile.warps, product, target)


def why_not_compiled(tile: Tile, product: Product, target: Target) -> str | None:
    """Why Triton cannot compile the tile at all, or None."""
    missing = product.mma.unit == "double" and target.unit == "tcgen05"
    if missing and tile.m >= 64 and tile.warps % 4 == 0:
        return (
            f"Triton compiles fp64 for {target.name} only with m up to 32 or fewer "
            "than 4 warps"
        )
    if tile.split_k != 1 and product.rights > 1:
        return "parts of a split K meet in one sum, this kernel has one for each side"
    return schedule_of(tile).why_not_compiled(tile, product)


def ring_blocks(tile: Tile, product: Product, target: Target) -> int:
    """K blocks of the ring; with multiply-adds from shared memory all are there."""
    if schedule_of(tile).by_fma:
        return tile.stages
    return memory.ring_blocks(tile.stages, instruction(tile, product, target))


def shared_memory(tile: Tile, product: Product, target: Target) -> int:
    """Bytes of shared memory that a program takes, never less than the compiler's."""
    return schedule_of(tile).shared_memory(tile, product, target)


def spills(tile: Tile, product: Product) -> bool:
    """Whether a tile is known to spill with some Triton from 3.6 to 3.9, for sm_90.

    Multiply-adds of fp32 hold a block too, 8 to 16 bytes too much with 128 bytes of K;
    fp64 spills 16 with 128 words.
    """
    if product.mma.unit == "fma" and not schedule_of(tile).by_fma:
        return tile.k * product.bytes > 64 and tile.m * tile.n > 32 * 32
    if product.mma.unit == "double":
        return accumulator_registers(tile, product) > 64
    return schedule_of(tile).spills(tile, product)


def fits(tile: Tile, product: Product, target: Target) -> bool:
    """Whether a block may have the shared memory that the tile takes, in any Triton."""
    needed = shared_memory(tile, product, target)
    if product.mma.terms > 1 and instruction(tile, product, target) == "wgmma":
        split = sides(tile, product)[0] * tile.k * product.bytes
        needed += product.rights * split  # 3.8 alone
    return needed <= target.shared_per_block


def registers(tile: Tile, product: Product) -> int:
    """32-bit registers of a thread: what the compiler gives, without an epilogue."""
    return schedule_of(tile).registers(tile, product)


def threads(tile: Tile) -> int:
    """Threads of a program."""
    return schedule_of(tile).threads(tile)


@cache
def resident(tile: Tile, product: Product, target: Target) -> int:
    """Programs that fit on one SM at a time, one at least."""
    return max(1, min(residents(tile, product, target).values()))


def programs_at_a_time(tile: Tile, product: Product, target: Target) -> int:
    """How many programs an SM runs: those that walk over tiles have one each."""
    return 1 if schedule_of(tile).persistent else resident(tile, product, target)


def residents(tile: Tile, product: Product, target: Target) -> dict[str, int]:
    """Programs that fit on one SM by what each needs of it alone."""
    bytes_each = shared_memory(tile, product, target) + target.reserved_per_block
    return {
        "shared memory": target.shared_per_sm // bytes_each,
        "registers": 65536 // (registers(tile, product) * threads(tile)),
        "threads": target.threads_per_sm // threads(tile),
        "programs": target.blocks_per_sm,
    }
