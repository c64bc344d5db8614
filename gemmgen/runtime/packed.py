"""What Triton's C launcher takes: found out once for a kernel, then made for each call.

The order of its arguments is Triton's own affair, so `replay.trusted` tries it first.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from triton.runtime import driver

from .launch import TF32, Block, Launch
from .support import Bounded, bind_context

MOST_MAPS = 256  # addresses of one block, such as the weights of many layers


class Compiled(NamedTuple):
    """A compiled kernel, with what its C launcher takes between stream and arguments.

    `nested` says that it takes the kernel's arguments as one tuple, `notes` tell of
    each descriptor how its tensor map is made.
    """

    launcher: Callable[..., None]
    fixed: tuple[Any, ...]
    nested: bool
    notes: tuple[dict[str, Any], ...]


def kind(launch: Launch) -> tuple:
    """Return all that decides what Triton compiles for a launch, by its public rules.

    Types, blocks and constants; which addresses and numbers are multiples of 16, which
    numbers are 1 and which need 64 bits.
    """
    key: list[Any] = [launch.kernel.fn, launch.device.index, *launch.options.values()]
    for one in launch.tensors:
        if isinstance(one, Block):
            key += (one.matrix.dtype, *one[1:])
        elif one is None:
            key.append(None)
        elif type(one) is not float:
            key += (one.dtype, one.data_ptr() & 15 == 0)
    scalars = launch.scalars
    parameters = launch.kernel.params[-len(scalars) :]
    key += map(kind_of, scalars, parameters)
    return tuple(key)


def kind_of(value: Any, parameter: Any) -> Any:
    """Return what of a kernel's argument decides what Triton compiles."""
    if parameter.is_constexpr:
        return value
    if parameter.do_not_specialize:
        return value >= 2**31
    return value == 1, value & 15 == 0, value >= 2**31


def compiled(made: Any, described: bool) -> Compiled:
    """Return what a kernel that Triton compiled is launched with.

    There are no metadata, hooks and scratch: what has some is not launched.
    """
    settings = (made.run.launch_cooperative_grid, made.run.launch_pdl)
    packed, absent = made.packed_metadata, (None,)
    notes = tuple(made.metadata.tensordesc_meta or ())
    if hasattr(made.run, "kernel_signature"):  # from Triton 3.7 on, one for all kernels
        types = (made.run.arg_annotations, made.run.kernel_signature)
        fixed = (made.function, *settings, packed, *5 * absent, *types)
        return Compiled(driver.active.utils.launch, fixed, True, notes)
    launcher = made.run.launch
    if described:  # it is inside of what makes the tensor maps
        inside = launcher.__code__.co_freevars.index("launcher")
        launcher = launcher.__closure__[inside].cell_contents
    between = (made.function, *settings, *2 * absent, packed, *3 * absent)
    return Compiled(launcher, between, False, notes)


class Likeness(NamedTuple):
    """What the tensor maps of a block are made from, but for the address.

    `fixed` are the driver's numbers of each: its swizzle, element and sides. There is
    None where a kernel has a parameter that its tile does not need.
    """

    fixed: tuple[tuple[Any, ...] | None, ...]
    shape: Sequence[int]
    strides: tuple[int, ...]

    def of_rows(self, M: int) -> "Likeness":
        """Return the same of M rows."""
        return Likeness(self.fixed, (M, self.shape[1]), self.strides)


def likenesses(launch: Launch, found: Compiled) -> list[Likeness | None]:
    """Return one for every tensor, None for those whose address will do."""
    notes = iter(found.notes)
    return [
        likeness(one, notes) if isinstance(one, Block) else None
        for one in launch.tensors
    ]


def likeness(block: Block, notes: Iterator[dict[str, Any]]) -> Likeness:
    """Return that of a block, of whose boxes Triton took notes as it compiled."""
    _, elements = encoder()
    fixed: list[tuple[Any, ...] | None] = []
    for box in block.boxes:
        note = next(notes) if box else None
        if note:
            element = elements[TF32 if block.to_tf32 else note["elem_type"]]
            numbers = note["swizzle"], note["elem_size"], element, note["block_size"]
            fixed.append(numbers)
        else:
            fixed.append(None)
    return Likeness(tuple(fixed), block.matrix.shape, block.matrix.stride())


def arguments(
    found: Compiled, programs: Sequence[int], stream: int, passed: Sequence[Any]
) -> tuple:
    """Return all that the C launcher takes, to launch programs of what is `passed`."""
    x, y, z = (*programs, 1, 1)[:3]
    mine = (tuple(passed),) if found.nested else passed
    return (x, y, z, stream, *found.fixed, *mine)


def encoded(
    address: int,
    fixed: Sequence[tuple[Any, ...] | None],
    shape: Sequence[int],
    strides: tuple[int, ...],
) -> list[Any]:
    """Return tensor maps for an address, each followed by sizes and strides."""
    made: list[Any] = []
    for numbers in fixed:
        if numbers is None:
            made.append(None)
        else:
            made += (tensor_map(address, *numbers, shape, strides), *shape, *strides)
    return made


def tensor_map(*passed: Any) -> Any:
    """Return one, even if nothing was asked of CUDA in this thread before."""
    fill, _ = encoder()
    try:
        return fill(*passed, 0)
    except RuntimeError:
        bind_context()
        return fill(*passed, 0)


class Maps(Bounded):
    """By address, the tensor maps of a block of one shape, made when missed."""

    def __init__(self, like: Likeness) -> None:
        """Keep what is the same at every address."""
        super().__init__(MOST_MAPS)
        self.like = like

    def __missing__(self, address: int) -> list[Any]:
        """Return the maps, and keep them."""
        self[address] = made = encoded(address, *self.like)
        return made


def described(
    maps: Sequence[Likeness | Maps | None], addresses: Sequence[Any]
) -> list[Any]:
    """Return tensors as a kernel takes them: addresses, or tensor maps."""
    passed: list[Any] = []
    for like, address in zip(maps, addresses, strict=True):
        if like is None:
            passed.append(address)
        else:
            made = like[address] if isinstance(like, Maps) else encoded(address, *like)
            passed += made
    return passed


@functools.cache
def encoder() -> tuple[Callable[..., Any], Mapping[int, int]]:
    """Return what makes tensor maps in C, and its numbers of Triton's element types.

    It takes an address, a block's `fixed`, shape and strides, and 0, which fills by 0.
    """
    from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST

    utils = driver.active.utils
    tiled = getattr(utils, "fill_tma_descriptor_tiled", None)  # from Triton 3.7 on
    return tiled or utils.fill_tma_descriptor, TMA_DTYPE_DEVICE_TO_HOST
