"""The pass of a backward on the stand-in: launched again as it is by Triton's entry."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import triton
from torch import Tensor

from gemmgen.render.names.parts import GRAD_EPILOGUE
from gemmgen.tables.layouts import strides_of
from gemmgen.verification.example import subject
from gemmgen.verification.example.one_example import Wrong
from gemmgen.verification.launches.bench import Bench
from gemmgen.verification.launches.habits import direct
from gemmgen.verification.stand_in.driver import Launched
from gemmgen.verification.stand_in.record import check_assumptions, difference, named

_USUAL = (37, 43)
_SIZES = ((1, 1), (1, 40), (40, 1), (4096, 512), (1 << 16, 1 << 14))
_FAR = (1 << 16, 1 + (1 << 15))
"""Sizes of a matrix of more than 2^31 elements."""
_NUMBERS = (2, -3.0, 2**70, 1e60)  # the last beyond fp32
_NOTHING = ((0, 5), (5, 0), (0, 0))
Steps = tuple[Callable[[int, int], tuple[int, int]], ...]
_ONE_NUMBER: Steps = (lambda m, n: (0, 0),)
_IN_ROWS: Steps = (lambda m, n: (n, 1),)
_STEPS: Steps = (
    *_IN_ROWS, *_ONE_NUMBER, lambda m, n: (1, m), lambda m, n: (2 * n, 2),
)  # fmt: skip
"""The strides of a matrix that lies in rows, in columns, or has gaps."""


def passes(bench: Bench) -> Iterator[tuple[str, Callable[[], None]]]:
    """Everything that is tried, by name; nothing where a backward has no pass."""
    if bench.plan.backward is None or not bench.plan.backward.passed:
        return
    one = _Pass(bench)
    for wanted in one.choices:
        yield f"a pass for {sorted(wanted)}", partial(_again, one, _USUAL, wanted)
    for sizes in _SIZES:
        yield f"a pass over {sizes}", partial(_again, one, sizes, one.choices[0])
    for check in (_told_apart, _left_out, _surrounded, _far, _nothing):
        yield str(check.__doc__), partial(check, one)


class _Pass:
    """A kernel's pass: an elementwise kernel over matrices [M, N], and its inputs."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        place = subject.part(bench.module, GRAD_EPILOGUE)
        self.kernel: Any = getattr(place, GRAD_EPILOGUE.upper())
        every = [*self.kernel.results]
        each = [{name} for name in every] + [{*every} - {name} for name in every]
        self.choices = [{*every}, *(one for one in each if one and one != {*every})]

    def renew(self) -> None:
        """Without launches that are remembered."""
        self.bench.renew(anew=False)
        self.kernel.replays.clear()

    def inputs(
        self,
        sizes: tuple[int, int],
        alpha: Any = 0.5,
        steps: Steps = _STEPS,
        device: int = 0,
    ) -> list[Any]:
        """What it reads: matrices whose strides differ, vectors, and a number."""
        step, where = iter(steps * len(self.kernel.inputs)), f"cuda:{device}"
        lengths, made = dict(zip("mn", sizes, strict=True)), list[Any]()
        for axes in self.kernel.inputs.values():
            shape = [lengths[axis] for axis in axes]
            strides = next(step)(*sizes) if axes == "mn" else (1,)
            made.append(
                torch.empty_strided(shape, strides, device=where) if axes else alpha
            )
        return made

    def run(self, given: Sequence[Any], wanted: set[str]) -> list[Launched]:
        """Its launches, after the results of a run were held against what is asked."""
        asked = [name in wanted for name in self.kernel.results]
        start = len(self.bench.driver.launches)
        sizes = dict(zip("mn", _first(given).shape, strict=True))
        results = self.kernel.run(given, asked)
        own = [
            one for one in self.bench.driver.launches[start:]
            if not self.bench.tries(one)
        ]  # fmt: skip
        named_results = zip(self.kernel.results.items(), results, asked, strict=True)
        for (name, axes), result, want in named_results:
            if (result is not None) != want:
                raise Wrong(f"{name} is made: {not want}, asked for: {want}")
            if result is not None:
                self.held(name, [sizes[axis] for axis in axes], result, own)
        for one in own:
            self.launched(one, given, wanted)
        return own

    def held(
        self, name: str, shape: list[int], result: Tensor, own: list[Launched]
    ) -> None:
        """Hold a result against its shape, its type and what was launched for it."""
        found = result.dtype, result.device.type, [*result.shape]
        if found != (self.kernel.dtypes[name], "cuda", shape):
            raise Wrong(f"{name} is {found}")
        if own and len(shape) > 1 and named(own[0])[f"{name}_ptr"] != result.data_ptr():
            raise Wrong(f"{name} is not what the kernel writes")

    def launched(self, one: Launched, given: Sequence[Any], wanted: set[str]) -> None:
        """Hold a launch against its arguments, and its programs against the tiles."""
        values = named(one)
        check_assumptions(one, values)
        for name, axes in self.kernel.results.items():
            if (values[f"{name}_ptr"] is not None) != (name in wanted):
                raise Wrong(f"{name} is {values[f'{name}_ptr']}, wanted: {wanted}")
            kind = one.function.compiled.src.signature[f"{name}_ptr"]
            if (
                name in wanted
                and len(axes) == 1
                and kind != f"*{self.bench.plan.accumulator}"
            ):
                raise Wrong(f"{name} is summed in {kind}")
        for (name, axes), value in zip(self.kernel.inputs.items(), given, strict=True):
            _held(name, axes, value, values)
        first = _first(given)
        if (values["M"], values["N"]) != first.shape:
            raise Wrong(f"sizes are passed as {values['M']} and {values['N']}")
        rows = triton.cdiv(values["M"], values["BLOCK_M"])
        columns = triton.cdiv(values["N"], values["BLOCK_N"])
        across, down = one.grid[:2]
        sms = subject.runtime(self.bench.module, "support").num_sms(first.device)
        full = subject.runtime(self.bench.module, "gradients.elementwise").PROGRAMS
        most = triton.cdiv(full * sms, columns)
        if (across, down) != (columns, min(rows, most)):
            raise Wrong(f"{across} x {down} programs for {columns} x {rows} tiles")


def _first(given: Sequence[Any]) -> Tensor:
    """The first matrix of those that are read, whose sizes are the pass's."""
    return next(one for one in given if one is not None)


def _held(name: str, axes: str, value: Any, values: Mapping[str, Any]) -> None:
    """Hold what a launch passes against one input: a tensor, a number, or nothing."""
    if not isinstance(value, Tensor):
        passed = values[name if value is not None else f"{name}_ptr"]
        if passed != value:
            raise Wrong(f"{name} is passed as {passed}")
        return
    if values[f"{name}_ptr"] != value.data_ptr():
        raise Wrong(f"{name} is passed as {values[f'{name}_ptr']}")
    steps = tuple(values[place] for place in strides_of(name, axes))
    if steps != value.stride():
        raise Wrong(f"strides of {name} are passed as {steps}")


def _again(one: _Pass, sizes: tuple[int, int], wanted: set[str]) -> None:
    """Twice, and afresh: the second is not decided anew, and passes the same."""
    one.renew()
    (first,) = one.run(one.inputs(sizes), wanted)
    given = one.inputs(sizes)
    with _known(one):
        (second,) = one.run(given, wanted)
    one.renew()
    (afresh,) = one.run(given, wanted)
    if not (first.through_triton and afresh.through_triton):
        raise Wrong("a new pass is launched as a known one")
    difference(second, afresh, list(one.kernel.results))


def _known(one: _Pass) -> AbstractContextManager[object]:
    """While a pass must be known."""
    anew = Wrong("a pass that comes again is decided anew")
    known = patch.object(one.kernel, "planned", side_effect=anew)
    return known if direct(one.bench) else nullcontext()


def _told_apart(one: _Pass) -> None:
    """Passes that differ in one thing are told apart."""
    one.renew()
    usual = one.inputs(_USUAL)
    others = [(usual, wanted) for wanted in one.choices]
    for at, value in enumerate(usual):
        left_out = [None] * (1 < one.kernel.optional > at)
        for other in (*left_out, *_others(value)):
            changed = [*usual[:at], other, *usual[at + 1 :]]
            others.append((changed, one.choices[0]))
    for given, wanted in others * 2:
        (_,) = one.run(given, wanted)


def _left_out(one: _Pass) -> None:
    """Which of several gradients is missing is told where they are alike, and known."""
    one.renew()
    usual = one.inputs(_USUAL, steps=_IN_ROWS)
    places = range(one.kernel.optional) if one.kernel.optional > 1 else ()
    for known in (False, True):
        for at in places:
            given = [*usual[:at], None, *usual[at + 1 :]]
            with _known(one) if known else nullcontext():
                one.run(given, one.choices[0])


def _others(value: Any) -> Iterator[Any]:
    """Other numbers, or tensors of other types, strides and alignment."""
    if not isinstance(value, Tensor):
        yield from _NUMBERS
        return
    length = 1 + sum(
        (size - 1) * step
        for size, step in zip(value.shape, value.stride(), strict=True)
    )
    further = torch.empty(length + 1, device="cuda")[1:]
    yield further.as_strided(value.shape, value.stride())
    yield torch.empty_strided(
        value.shape, value.stride(), dtype=torch.float64, device="cuda"
    )
    steps = (3 * max(1, step) for step in value.stride())
    yield torch.empty_strided(value.shape, tuple(steps), device="cuda")


def _surrounded(one: _Pass) -> None:
    """A pass that is known, while another device is current, and beside a hook."""
    one.renew()
    every, driver = one.choices[0], one.bench.driver
    given = one.inputs(_USUAL, 2)
    for _ in range(2):
        one.run(given, every)
    for device in (0, 1):
        (elsewhere,) = one.run(one.inputs(_USUAL, 2, device=device), every)
        with driver.stream(1 - device, 0):
            (beside,) = one.run(one.inputs(_USUAL, 2, device=device), every)
        if (elsewhere.device, beside.device) != (device, device):
            raise Wrong(f"launched on other devices than {device}")
    told: list[object] = []
    hooks = triton.knobs.runtime.launch_enter_hook
    hooks.add(told.append)
    try:
        one.run(given, every)
    finally:
        hooks.remove(told.append)
    if not told:
        raise Wrong("a pass calls no hook")


def _far(one: _Pass) -> None:
    """Offsets take 64 bits where one tensor alone needs them, an input or a result."""
    one.renew()
    m, n = _FAR
    results = one.kernel.results
    sums = {name for name, axes in results.items() if axes != "mn"}
    for place, axes in enumerate(one.kernel.inputs.values()):
        if axes:
            given = one.inputs((1, m) if axes == "n" else (m, 1), steps=_ONE_NUMBER)
            shape, steps = given[place].shape, (n, 1)[: len(axes)]
            given[place] = torch.empty_strided(shape, steps, device="cuda")
            _offsets(one, given, sums or one.choices[0])
    for name in [*results]:
        if name not in sums:
            _offsets(one, one.inputs(_FAR, steps=_ONE_NUMBER), {name})


def _offsets(one: _Pass, given: Sequence[Any], wanted: set[str]) -> None:
    (launched,) = one.run(given, wanted)
    if str(named(launched)["INDEX"]) != "int64":
        raise Wrong("offsets beyond 2^31 take 32 bits")


def _nothing(one: _Pass) -> None:
    """Nothing is launched where nothing is asked or there; sums of nothing are 0."""
    one.renew()
    if one.run(one.inputs(_USUAL), set()):
        raise Wrong("launches though nothing is wanted")
    for sizes in _NOTHING:
        given = one.inputs(sizes)
        if one.run(given, one.choices[0]):
            raise Wrong(f"launches for {sizes}")
        every = one.kernel.run(given, [True] * len(one.kernel.results))
        if any(bool(result.any()) for result in every):
            raise Wrong(f"sums of nothing, over {sizes}, are not 0")
