"""A kernel's nn.Module: the launcher's results, of parameters that are nn.Linear's."""

from dataclasses import replace
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from gemmgen.problem.layer import Layer
from gemmgen.render.names.parts import MODULE, public
from gemmgen.select.plan import Plan
from gemmgen.verification.cases.cases import Case
from gemmgen.verification.contract.refusals import valid_call
from gemmgen.verification.example import subject
from gemmgen.verification.example.one_example import Wrong, bits
from gemmgen.verification.oracle.comparison import Block

_CASE = Case((3,), 5, 7)
_BLOCK = Block(16, 16, 16)


class Held:
    """A kernel's class, and a call of its launcher; `given` are a module's arguments.

    `types` are those of the parameters by nn.Linear's names, `values` what they hold.
    """

    def __init__(
        self,
        plan: Plan,
        module: ModuleType,
        device: torch.device,
        case: Case = _CASE,
    ) -> None:
        layer, call = Layer(plan), valid_call(plan, case, device)
        numbers = {name: 0.5 + at for at, name in enumerate(call.numbers)}
        every = {**call.tensors, **numbers}
        self.plan, self.device, self.case = plan, device, case
        self.call = replace(call, numbers=numbers, outputs=None)
        self.launcher = subject.launcher(plan, module)
        place = subject.part(module, MODULE)
        self.kind: Any = getattr(place, public(plan.name, MODULE))
        self.replacing: Any = subject.runtime(module, "layers.replace").replace_linears
        self.activation = layer.activation
        self.inputs = [every[name] for name in plan.argument_names]
        self.names = layer.passed
        self.given = [every[name] for name in layer.passed]
        self.values = {own: every[name] for name, own in layer.parameters.items()}

    def made(self, **named: Any) -> Any:
        """A module of the call's sizes."""
        return self.kind(self.case.k, self.case.n, device=self.device, **named)

    def linear(self, dtype: torch.dtype | None = None) -> Any:
        """torch's own, of the types that the module should have or of another."""
        weight, bias = self.values["weight"], self.values.get("bias")
        named = {"device": self.device, "dtype": dtype or weight.dtype}
        made = nn.Linear(self.case.k, self.case.n, bias is not None, **named)
        if bias is not None and dtype is None:
            made.bias = nn.Parameter(made.bias.detach().to(bias.dtype))
        return made

    def filled(self, module: Any) -> Any:
        """A module with the call's values."""
        module.load_state_dict(self.values)
        return module


def check_layer(plan: Plan, module: ModuleType, device: torch.device) -> int:
    """Raise `Wrong` for what is not as it must be; how many things were tried."""
    one = Held(plan, module, device)
    checks = _made, _states, _called, _learned
    for check in checks:
        check(one)
    return len(checks)


def _same(what: str, got: Any, want: Any) -> None:
    """Raise `Wrong` unless tensors, or several, are alike bit by bit."""
    several = isinstance(want, tuple | list)
    pairs = zip(got, want, strict=True) if several else [(got, want)]
    for mine, theirs in pairs:
        if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
            raise Wrong(f"{what} is {mine.dtype} {tuple(mine.shape)}")
        if not torch.equal(bits(mine.detach()), bits(theirs.detach())):
            raise Wrong(f"{what} has other values than it should")


def _alike(what: str, module: Any, other: Any) -> None:
    """Raise `Wrong` unless two have the same parameters, in one order."""
    mine, theirs = dict(module.named_parameters()), dict(other.named_parameters())
    if [*mine] != [*theirs]:
        raise Wrong(f"{what} has {[*mine]}, not {[*theirs]}")
    for name, parameter in mine.items():
        _same(f"{name} of {what}", parameter, theirs[name])
        if not parameter.requires_grad:
            raise Wrong(f"{name} of {what} requires no gradient")


def _made(one: Held) -> None:
    """It begins as nn.Linear does, in its own types or others, with bias as it must."""
    has_bias, weight_type = "bias" in one.values, one.values["weight"].dtype
    other = torch.float32 if weight_type == torch.float64 else torch.float64
    for dtype in (None, weight_type, other):
        torch.manual_seed(0)
        own = one.made(dtype=dtype, bias=has_bias)
        torch.manual_seed(0)
        torchs = one.linear(other if dtype == other else None)
        _alike(f"a module made with dtype={dtype}", own, torchs)
        if own.extra_repr() != torchs.extra_repr():
            raise Wrong(f"a module tells of {own.extra_repr()}")
    try:
        one.made(bias=not has_bias)
    except ValueError as error:
        if f"bias must be {has_bias}" not in str(error):
            raise Wrong(f"bias={not has_bias}: {error}") from error
    else:
        raise Wrong(f"bias={not has_bias}: accepted")


def _states(one: Held) -> None:
    """What nn.Linear saves it loads, and the other way round."""
    torchs, own = one.filled(one.linear()), one.made()
    own.load_state_dict(torchs.state_dict())
    _alike("a module that loads nn.Linear's state", own, torchs)
    back = one.linear()
    back.load_state_dict(own.state_dict())
    _alike("an nn.Linear that loads a module's state", back, torchs)


def _called(one: Held) -> None:
    """It returns what the launcher does."""
    with torch.no_grad():
        wanted = one.launcher(*one.inputs)
        _same("the module's result", one.filled(one.made())(*one.given), wanted)


def _learned(one: Held) -> None:
    """Its parameters get the launcher's gradients, or its error is the launcher's."""
    own = one.filled(one.made())
    if one.plan.backward is None:
        for name, mine in Layer(one.plan).parameters.items():
            _unlearned(one, name, mine)
        return
    learning = {
        name: value.detach().clone().requires_grad_()
        for name, value in one.values.items()
    }
    names = dict(zip(one.plan.argument_names, one.inputs, strict=True))
    names |= {name: learning[mine] for name, mine in Layer(one.plan).parameters.items()}
    _summed(one.launcher(*names.values())).backward()
    _summed(own(*one.given)).backward()
    for name, value in learning.items():
        found = getattr(own, name).grad
        if found is None:
            raise Wrong(f"{name} of the module has no gradient")
        _same(f"the gradient of {name}", found, value.grad)


def _unlearned(one: Held, name: str, parameter: str) -> None:
    """Hold that a module raises the launcher's error for a parameter that learns."""
    own = one.made().requires_grad_(False)
    getattr(own, parameter).requires_grad_()
    try:
        own(*one.given)
    except ValueError as error:
        if not str(error).startswith(f"{one.plan.name}: {name} must not require"):
            raise Wrong(f"the gradient of {parameter}: {error}") from error
    else:
        raise Wrong(f"the gradient of {parameter} is left out in silence")


def _summed(returned: Any) -> Tensor:
    """One number of all results, each with its own weight."""
    several = returned if isinstance(returned, tuple) else (returned,)
    return sum(at * each.double().sum() for at, each in enumerate(several, 1))
