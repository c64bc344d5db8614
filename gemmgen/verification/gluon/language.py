"""Stand-ins for the modules that a Gluon kernel names: `gl`, `hopper` and so on."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import triton.language as tl
from triton.experimental.gluon import language as real_gl
from triton.experimental.gluon.language.nvidia import ampere as real_ampere
from triton.experimental.gluon.language.nvidia import hopper as real_hopper

from gemmgen.verification.gluon import assembly, asynchronous, copies, registers
from gemmgen.verification.gluon.descriptors import Descriptor, storage
from gemmgen.verification.gluon.program import Load
from gemmgen.verification.gluon.running import (
    MEETS,
    Running,
    arrive,
    expect,
    init,
    step,
    wait,
)
from gemmgen.verification.gluon.views import (
    UNNAMED,
    BarrierLayout,
    Barriers,
    Boxes,
    Ring,
    View,
)
from gemmgen.verification.memory.barriers import Barrier
from gemmgen.verification.memory.misuse import Unsupported, frame_here, frames, misused
from gemmgen.verification.memory.shared import Access


class Module:
    """Stands for a module of Gluon; what it lacks is named, or taken from another."""

    def __init__(self, name: str, other: Any = None, **names: Any) -> None:
        self._name = name
        self._other = other
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        if self._other is not None and hasattr(self._other, name):
            return getattr(self._other, name)
        raise Unsupported(f"the interpreter of Gluon has no {self._name}.{name}")


def _allocate(dtype: Any, shape: Sequence[Any], layout: Any) -> Ring:
    kind = Barriers if isinstance(layout, BarrierLayout) else Ring
    return kind(Running.program, dtype, list(shape), layout)


def _zeros(shape: Sequence[Any], dtype: Any, layout: Any) -> registers.Registers:
    sizes = tuple(map(int, shape))
    _check(layout)
    return registers.Registers(np.zeros(sizes, storage(dtype)), dtype, layout)


def _full(
    shape: Sequence[Any], value: Any, dtype: Any, layout: Any
) -> registers.Registers:
    data = np.full(tuple(map(int, shape)), int(value), storage(dtype))
    return registers.Registers(data, dtype, layout)


def _inline(
    asm: str, constraints: str, args: Sequence[Any], dtype: Any, is_pure: Any, pack: Any
) -> Any:
    program = Running.program
    total = assembly.run(program, asm, constraints, args, int(pack), bool(is_pure))
    program.pause()
    return total


def _reinterpret(memory: Ring, dtype: Any, shape: Sequence[Any], layout: Any) -> Boxes:
    return memory.reinterpret(dtype, shape, layout)


def _convert(value: registers.Registers, layout: Any) -> registers.Registers:
    _check(layout)
    return registers.Registers(value.handle.data, value.handle.dtype, layout)


def _check(layout: Any) -> None:
    registers.check_halves(layout, Running.program.ctas)
    registers.check_threads(layout, Running.program.me.warps)


def _arange(start: Any, end: Any, layout: Any = None) -> Any:
    _check(layout)
    return tl.arange(start, end)


def _warp_specialize(
    parts: Sequence[tuple[Any, tuple[Any, ...]]],
    worker_warps: Sequence[int],
    worker_registers: Sequence[int] | None = None,
) -> None:
    program = Running.program
    if MEETS and program.ctas > 1 and program.steps != ["fence", "meet"]:
        raise misused("CTAs of a cluster start before their barriers are known to all")
    _name_rings()
    warps = [program.kernel.warps, *worker_warps]
    if len(warps) != len(parts):
        raise misused(f"{len(parts)} partitions have warps for {len(warps)}")
    if worker_registers is not None:
        registers.check_shares(warps, worker_registers)
    names = [f"{fn.__name__} ({number})" for number, (fn, _) in enumerate(parts)]
    program.fork(names, warps, [partial(fn, *values) for fn, values in parts])


def _name_rings() -> None:
    """Call shared memory as the kernel does, whichever of its functions is running."""
    for frame in frames(frame_here()):
        for name, value in frame.f_locals.items():
            if _only_rings(value):
                _name(name, value)


def _only_rings(value: Any) -> bool:
    """Whether a value is shared memory, or a tuple of nothing else."""
    if isinstance(value, tuple):
        return all(map(_only_rings, value))
    return isinstance(value, Ring)


def _name(name: str, value: Any) -> None:
    if isinstance(value, Ring):
        value.name = name
        return
    for number, one in enumerate(value):
        _name(f"{name}[{number}]", one)


def _load(
    descriptor: Descriptor,
    corner: list[Any],
    barrier: Barrier,
    view: View,
    pred: Any = True,
    multicast: bool = False,
) -> None:
    if not pred:
        return
    program = Running.program
    barrier.required()
    asynchronous.check_box(descriptor, view)
    ctas = [program.me.cta]
    if multicast and view.held == view.sides:  # the first CTA loads for all
        ctas = [] if program.me.cta else list(range(program.ctas))
    first = asynchronous.corner_of(list(corner), view, view.held)
    for cta in ctas:
        block, bar = view.block.each[cta], barrier.each[cta]
        access = Access("a load from global memory", bar.end, True)
        block.write(access, program.me.clock, view.held)
        sides, shape = view.held, view.moved
        program.load(Load(descriptor, first, shape, block, sides, bar, bar.phase))
    program.pause()


def _store(descriptor: Descriptor, corner: list[Any], view: View) -> None:
    asynchronous.store(Running.program, descriptor, list(corner), view)
    Running.program.pause()


def _store_wait(pendings: Any) -> None:
    asynchronous.wait_for_stores(Running.program, int(pendings))
    Running.program.pause()


def _fence() -> None:
    program = Running.program
    for block in program.blocks:
        block.fence(program.me.clock)


def _multiply(
    a: Any, b: View, acc: Any, *, use_acc: Any = True, is_async: bool = False
) -> Any:
    program = Running.program
    total = asynchronous.multiply(program, a, b, acc, bool(use_acc))
    if not is_async:
        return _multiply_wait(0, deps=[total])
    program.pause()
    return total


def _multiply_wait(num_outstanding: Any = 0, deps: Any = None) -> Any:
    found = asynchronous.wait_for_products(Running.program, int(num_outstanding), deps)
    Running.program.pause()
    return found


def _copy(view: View, pointers: Any, mask: Any = None) -> None:
    if view.ring.name == UNNAMED:
        _name_rings()
    copies.copy(Running.program, view, pointers, mask)


TL = Module(
    "tl",
    tl,
    # Whole numbers stay Python's: as tensors they take most of the time.
    program_id=lambda axis: int(tl.program_id(axis)),
    num_programs=lambda axis: int(tl.num_programs(axis)),
    cdiv=lambda size, block: -(-size // block),
)
MBARRIER = Module(
    "mbarrier",
    MBarrierLayout=BarrierLayout,
    init=init,
    wait=wait,
    expect=expect,
    arrive=arrive,
    fence_init_release_cluster=partial(step, "fence"),
)
CLUSTER = Module("cluster", barrier=partial(step, "meet"))
TMA = Module(
    "tma",
    async_load=_load,
    async_copy_global_to_shared=_load,
    async_store=_store,
    async_copy_shared_to_global=_store,
    store_wait=_store_wait,
)
ASYNC_COPY = Module(
    "async_copy",
    async_load=_copy,
    async_copy_global_to_shared=_copy,
    commit_group=lambda: copies.commit(Running.program),
    wait_group=lambda left=0: copies.wait(Running.program, int(left)),
)
HOPPER = Module(
    "hopper",
    mbarrier=MBARRIER,
    tma=TMA,
    fence_async_shared=_fence,
    warpgroup_mma=_multiply,
    warpgroup_mma_wait=_multiply_wait,
)
GL = Module(
    "gl",
    TL,  # what Gluon has in common with Triton
    NVMMADistributedLayout=registers.Products,
    DotOperandLayout=registers.Operand,
    SliceLayout=registers.Slice,
    allocate_shared_memory=_allocate,
    zeros=_zeros,
    full=_full,
    inline_asm_elementwise=_inline,
    arange=_arange,
    convert_layout=_convert,
    dot_fma=registers.multiply_add,
    num_warps=lambda: Running.program.me.warps,
    static_range=range,
    num_ctas=lambda: Running.program.ctas,
    warp_specialize=_warp_specialize,
)


def device_function(function: Any, of_numbers: Any) -> Any:
    """A function of Triton as kernels call it, with blocks or `of_numbers`."""

    def called(*arguments: Any) -> Any:
        whole = all(isinstance(one, int) for one in arguments)
        return (of_numbers if whole else function)(*arguments)

    return called


def stand_ins() -> dict[int, Any]:
    """By identity of the real module or function, what stands for it in a kernel."""
    found: dict[int, Any] = {}
    pairs: list[tuple[Any, Module]] = [
        (tl, TL),
        (real_gl, GL),
        (real_hopper, HOPPER),
        (real_hopper.mbarrier, MBARRIER),
        (real_hopper.tma, TMA),
        (getattr(real_hopper, "cluster", None), CLUSTER),
        (real_ampere.async_copy, ASYNC_COPY),
    ]
    for real, module in pairs:
        found[id(real)] = module
        for name, value in vars(module).items():
            if not name.startswith("_") and hasattr(real, name):
                found[id(getattr(real, name))] = value
    memory = real_gl.shared_memory_descriptor
    for name in ("reinterpret", "_reinterpret"):
        found[id(getattr(memory, name, None))] = _reinterpret
    found.pop(id(None), None)  # modules and methods that this Triton lacks
    return found
