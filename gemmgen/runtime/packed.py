"""What Triton's C launcher takes: found out once for a kernel, then made for each call.

The order of its arguments is Triton's own affair, so `replay` tries them first.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from triton.runtime import driver

from .launch import Block, Launch

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
        elif type(one) is not float:
            key += (one.dtype, one.data_ptr() & 15 == 0)
    scalars = launch.scalars
    parameters = launch.kernel.params[-len(scalars) :]
    key += map(kind_of, scalars, parameters)
    return tuple(key)


def kind_of(value: Any, parameter: Any) -> Any:
    """Return what of a value decides it."""
    if parameter.is_constexpr:
        return value
    if parameter.do_not_specialize:
        return value >= 2**31
    return value == 1, value & 15 == 0, value >= 2**31


def compiled(made: Any, described: bool) -> Compiled:
    """Return what a kernel that Triton compiled is launched with.

    The order of the C launcher's arguments is Triton's own affair, so `trusted` tries
    it first. There are no metadata, hooks and scratch: what has some is not launched.
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
    """What the tensor map of a block is made from, but for the address."""

    note: dict[str, Any]
    shape: Sequence[int]
    strides: tuple[int, ...]
    to_tf32: bool

    def of_rows(self, M: int) -> "Likeness":
        """Return the same of M rows."""
        return Likeness(self.note, (M, self.shape[1]), self.strides, self.to_tf32)


def likenesses(launch: Launch, found: Compiled) -> list[Likeness | None]:
    """Return one for every tensor, None for those whose address will do."""
    notes = iter(found.notes)
    return [
        (
            Likeness(next(notes), one.matrix.shape, one.matrix.stride(), one.to_tf32)
            if isinstance(one, Block)
            else None
        )
        for one in launch.tensors
    ]


def arguments(
    launch: Launch,
    found: Compiled,
    stream: int,
    tensors: Sequence[Any],
    scratch: Sequence[Any],
) -> tuple:
    """Return all that the C launcher takes, tensors as the kernel takes them."""
    if launch.splits and not launch.in_parts:
        scratch = (0, 0)
    passed = (*tensors, *scratch, *launch.scalars)
    x, y, z = (*launch.programs, 1, 1)[:3]
    mine = (passed,) if found.nested else passed
    return (x, y, z, stream, *found.fixed, *mine)


def described(likes: Sequence[Likeness | None], addresses: Sequence[Any]) -> list[Any]:
    """Return tensors as a kernel takes them: addresses, or tensor maps."""
    passed: list[Any] = []
    for like, one in zip(likes, addresses, strict=True):
        passed += [one] if like is None else encoded(one, like)
    return passed


class Described(NamedTuple):
    """A block in memory, as what makes tensor maps looks at one."""

    address: int
    shape: Sequence[int]
    strides: tuple[int, ...]
    round_f32_to_tf32: bool
    padding: str = "zero"

    @property
    def base(self) -> "Described":
        """What has the address."""
        return self

    def data_ptr(self) -> int:
        """Return the address."""
        return self.address


def encoded(address: int, like: Likeness) -> list[Any]:
    """Return a tensor map for an address, followed by sizes and strides."""
    make, unused = encoder()
    return make(Described(address, *like[1:]), like.note, *unused)


class Maps(dict):
    """By address, the tensor map of a block of one shape, made when missed."""

    def __init__(self, like: Likeness) -> None:
        """Keep what is the same at every address."""
        super().__init__()
        self.like = like

    def __missing__(self, address: int) -> list[Any]:
        """Return the map, and keep it."""
        if len(self) >= MOST_MAPS:
            self.clear()
        self[address] = made = encoded(address, self.like)
        return made


@functools.cache
def encoder() -> tuple[Callable[..., list[Any]], tuple[None, ...]]:
    """Return what makes tensor maps, and the arguments that it ignores."""
    from triton.backends.nvidia.driver import make_tensordesc_arg

    # From Triton 3.8 on it takes a third argument.
    return make_tensordesc_arg, (None,) * (make_tensordesc_arg.__code__.co_argcount - 2)
