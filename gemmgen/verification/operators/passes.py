"""The pass of a backward as an operator: cut, traced, and without memory."""

import sys
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from gemmgen.render.names.parts import GRAD_EPILOGUE
from gemmgen.verification.example.cut import check_cut
from gemmgen.verification.example.one_example import Wrong, several
from gemmgen.verification.operators.entered import Entered

_WAYS = 3
"""Ways to cut a pass: not at all, along rows, along columns."""
_SIZES = {"m": 6, "n": 10}


def check_pass(one: Entered) -> None:
    """Raise `Wrong` for what is not as it must be of a pass, if there is one."""
    passed = pass_of(one)
    if passed is None:
        return
    inputs = _inputs(passed, one.device)
    for check in (_declared, _made_again, _cut, _traced, _without_memory):
        check(passed, inputs)


def pass_of(one: Entered) -> Any:
    """The pass of its backward, if it has one."""
    place = sys.modules.get(f"{one.launcher.__module__}.{GRAD_EPILOGUE}")
    return getattr(place, GRAD_EPILOGUE.upper(), None)


def _inputs(passed: Any, device: torch.device) -> list[Any]:
    source = torch.Generator().manual_seed(0)
    return [
        (
            _between_1_and_2([_SIZES[axis] for axis in axes], source).to(device)
            if axes
            else 0.5
        )
        for axes in passed.inputs.values()
    ]


def _between_1_and_2(shape: Sequence[int], source: torch.Generator) -> Tensor:
    """Values whose sums do not cancel, so that parts of them round as the whole."""
    return 1 + torch.rand(shape, generator=source)


def _declared(passed: Any, inputs: Sequence[Any]) -> None:
    """Torch knows that gradients of results may be missing, and nothing else."""
    arguments = passed.overload._schema.arguments
    missing = [str(one.type).startswith("Optional") for one in arguments]
    if missing != [at < passed.optional for at in range(1 + len(inputs))]:
        raise Wrong(f"of a pass may be missing: {missing}")


def _made_again(passed: Any, inputs: Sequence[Any]) -> None:
    """That of a module which is imported again has the operator that is there."""
    axes = {**passed.inputs, **passed.results}
    types = passed.dtypes.items()
    dtypes = {name: str(one).removeprefix("torch.") for name, one in types}
    anew = Wrong("a pass that is made again is defined again")
    module = sys.modules[type(passed).__module__]
    with patch.object(module, "define", side_effect=anew):
        again = type(passed)(
            passed.triton_kernel, axes, dtypes, optional=passed.optional
        )
    passed.slot.keep(passed)
    if again.overload is not passed.overload:
        raise Wrong("a pass that is made again has another operator")


def _cut(passed: Any, inputs: Sequence[Any]) -> None:
    """In each way in which DTensor may cut a pass, parts make it up."""
    every = 2 ** len(passed.results) - 1
    sharding = sys.modules[type(passed.axes).__module__]
    given = (sharding, passed.axes, lambda *each: several(passed.overload(*each)))
    for missing in (None, *range(passed.optional)):
        some = [None if at == missing else one for at, one in enumerate(inputs)]
        if (ways := check_cut(*given, [*some, every])) != _WAYS:
            raise Wrong(f"{ways} ways to cut a pass")


def _traced(passed: Any, inputs: Sequence[Any]) -> None:
    """What torch.compile traces is the operator, and comes to the same."""
    module, count = sys.modules[type(passed).__module__], len(passed.results)
    for bits in (*(1 << place for place in range(count)), 2**count - 1):
        wanted = passed.wanted(bits)
        with (
            patch.object(module, "tracing", lambda: True),
            patch.object(passed, "overload", wraps=passed.overload) as operator,
        ):
            returned = passed.run(inputs, wanted)
        if not operator.called:
            raise Wrong("what torch.compile traces of a pass is not the operator")
        for got, want in zip(returned, passed.compute(inputs, wanted), strict=True):
            if (got is None) != (want is None):
                raise Wrong(f"of {wanted} a traced pass returns {returned}")
            if got is not None and not torch.equal(got, want):
                raise Wrong("a traced pass returns other values")


def _without_memory(passed: Any, inputs: Sequence[Any]) -> None:
    """Fake results are like real ones, whichever are wanted."""
    for bits in range(1, 2 ** len(passed.results)):
        results = several(passed.overload(*inputs, bits))
        with FakeTensorMode() as mode:
            fakes = [
                mode.from_tensor(x) if isinstance(x, Tensor) else x for x in inputs
            ]
            returned = several(passed.overload(*fakes, bits))
        for got, want in zip(returned, results, strict=True):
            found = got.shape, got.stride(), got.dtype
            if found != (want.shape, want.stride(), want.dtype):
                raise Wrong(f"fake results of a pass are {found}")
