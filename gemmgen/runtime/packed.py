"""The arguments of Triton's C launcher: some are known for a kernel, some for a call.

Their order is no public part of Triton, so `replay.replays_work` tries it first.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from triton.runtime import driver

from .launch import TF32, Launch, TmaArg
from .support import Bounded, bind_context

MOST_MAPS = 256  # addresses of one argument, such as the weights of many layers


class Compiled(NamedTuple):
    """A compiled kernel's C launcher, and what it takes between stream and arguments.

    `nested` says whether it takes the kernel's arguments as one tuple. `notes` are
    Triton's metadata of each descriptor, from which its tensor map is encoded.
    """

    launcher: Callable[..., None]
    fixed: tuple[Any, ...]
    nested: bool
    notes: tuple[dict[str, Any], ...]


def compile_key(launch: Launch) -> tuple:
    """Return what decides what Triton compiles for a launch, by its documented rules.

    Types, boxes and constants; which addresses and numbers are multiples of 16, which
    numbers are 1 and which need 64 bits.
    """
    key: list[Any] = [launch.kernel.fn, launch.device.index, *launch.options.values()]
    for one in launch.tensors:
        if isinstance(one, TmaArg):
            key += (one.matrix.dtype, *one[1:])
        elif one is None:
            key.append(None)
        elif type(one) is not float:
            key += (one.dtype, one.data_ptr() & 15 == 0)
    scalars = launch.scalars
    parameters = launch.kernel.params[-len(scalars) :]
    key += map(specialization, scalars, parameters)
    return tuple(key)


def specialization(value: Any, parameter: Any) -> Any:
    """Return the part of a scalar argument by which Triton specializes a kernel."""
    if parameter.is_constexpr:
        return value
    if parameter.do_not_specialize:
        return value >= 2**31
    return value == 1, value & 15 == 0, value >= 2**31


def compiled(kernel: Any, via_tma: bool) -> Compiled:
    """Return the C launcher of a kernel that Triton compiled.

    Launch metadata, hooks and scratch are None: kernels that need some do not get here.
    """
    settings = (kernel.run.launch_cooperative_grid, kernel.run.launch_pdl)
    packed, absent = kernel.packed_metadata, (None,)
    notes = tuple(kernel.metadata.tensordesc_meta or ())
    if hasattr(kernel.run, "kernel_signature"):  # Triton 3.7 and later
        types = (kernel.run.arg_annotations, kernel.run.kernel_signature)
        fixed = (kernel.function, *settings, packed, *5 * absent, *types)
        return Compiled(driver.active.utils.launch, fixed, True, notes)
    launcher = kernel.run.launch
    if via_tma:  # it is wrapped in a function that encodes tensor maps
        inside = launcher.__code__.co_freevars.index("launcher")
        launcher = launcher.__closure__[inside].cell_contents
    before = (kernel.function, *settings, *2 * absent, packed, *3 * absent)
    return Compiled(launcher, before, False, notes)


class TmaTemplate(NamedTuple):
    """What the tensor maps of an argument are encoded from, but for its address.

    `fixed` are the driver's values of each box: swizzle, element size and type, sides;
    None for a descriptor that the tile does not need.
    """

    fixed: tuple[tuple[Any, ...] | None, ...]
    shape: Sequence[int]
    strides: tuple[int, ...]

    def of_rows(self, M: int) -> "TmaTemplate":
        """Return the template for M rows."""
        return TmaTemplate(self.fixed, (M, self.shape[1]), self.strides)


def tma_templates(launch: Launch, found: Compiled) -> list[TmaTemplate | None]:
    """Return a template for each tensor, None for those passed by address."""
    notes = iter(found.notes)
    return [
        tma_template(one, notes) if isinstance(one, TmaArg) else None
        for one in launch.tensors
    ]


def tma_template(arg: TmaArg, notes: Iterator[dict[str, Any]]) -> TmaTemplate:
    """Return the template of an argument; take the notes of its boxes."""
    _, elements = encoder()
    fixed: list[tuple[Any, ...] | None] = []
    for box in arg.boxes:
        note = next(notes) if box else None
        if note:
            element = elements[TF32 if arg.to_tf32 else note["elem_type"]]
            numbers = note["swizzle"], note["elem_size"], element, note["block_size"]
            fixed.append(numbers)
        else:
            fixed.append(None)
    return TmaTemplate(tuple(fixed), arg.matrix.shape, arg.matrix.stride())


def launcher_args(
    found: Compiled, programs: Sequence[int], stream: int, passed: Sequence[Any]
) -> tuple:
    """Return the C launcher's arguments, of which `passed` are the kernel's."""
    x, y, z = (*programs, 1, 1)[:3]
    arguments = (tuple(passed),) if found.nested else passed
    return (x, y, z, stream, *found.fixed, *arguments)


def encode(
    address: int,
    fixed: Sequence[tuple[Any, ...] | None],
    shape: Sequence[int],
    strides: tuple[int, ...],
) -> list[Any]:
    """Return the tensor maps of an address, each followed by sizes and strides."""
    maps: list[Any] = []
    for numbers in fixed:
        if numbers is None:
            maps.append(None)
        else:
            maps += (tensor_map(address, *numbers, shape, strides), *shape, *strides)
    return maps


def tensor_map(*passed: Any) -> Any:
    """Return a tensor map, also in a thread without a CUDA context."""
    fill, _ = encoder()
    try:
        return fill(*passed, 0)
    except RuntimeError:
        bind_context()
        return fill(*passed, 0)


class TensorMaps(Bounded):
    """The tensor maps of a template by address, encoded when first asked for."""

    def __init__(self, template: TmaTemplate) -> None:
        """Start empty."""
        super().__init__(MOST_MAPS)
        self.template = template

    def __missing__(self, address: int) -> list[Any]:
        """Encode the maps, and keep them."""
        self[address] = maps = encode(address, *self.template)
        return maps


MapSource = TmaTemplate | TensorMaps | None


def kernel_args(maps: Sequence[MapSource], addresses: Sequence[Any]) -> list[Any]:
    """Return tensors as a kernel takes them: addresses, or tensor maps."""
    passed: list[Any] = []
    for source, address in zip(maps, addresses, strict=True):
        if source is None:
            passed.append(address)
        elif isinstance(source, TensorMaps):
            passed += source[address]
        else:
            passed += encode(address, *source)
    return passed


@functools.cache
def encoder() -> tuple[Callable[..., Any], Mapping[int, int]]:
    """Return Triton's C encoder of tensor maps, and its codes of element types.

    It takes an address, `fixed` of a box, shape, strides, and 0 to fill with zeros.
    """
    from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST

    utils = driver.active.utils
    tiled = getattr(utils, "fill_tma_descriptor_tiled", None)  # Triton 3.7 and later
    return tiled or utils.fill_tma_descriptor, TMA_DTYPE_DEVICE_TO_HOST
