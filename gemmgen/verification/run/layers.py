"""A kernel's nn.Module: the launcher's results, of parameters that are nn.Linear's.

And its exchange for torch's own modules, by what these compute.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from gemmgen.problem.layer import Layer
from gemmgen.render.parts import MODULE, public
from gemmgen.select.plan import Plan
from gemmgen.verification.cases.cases import Case
from gemmgen.verification.example import subject
from gemmgen.verification.example.one_example import Wrong, bits, check_results
from gemmgen.verification.oracle.comparison import Block
from gemmgen.verification.run.refusals import valid_call

_CASE = Case((3,), 5, 7)
_BLOCK = Block(16, 16, 16)
_ACTIVATIONS: dict[str, Callable[[], Any]] = {
    "x": nn.Identity,
    "relu(x)": nn.ReLU,
    "gelu(x)": nn.GELU,
    "gelu_tanh(x)": lambda: nn.GELU("tanh"),
    "silu(x)": nn.SiLU,
    "sigmoid(x)": nn.Sigmoid,
    "tanh(x)": nn.Tanh,
    "softplus(x)": nn.Softplus,
    "hardswish(x)": nn.Hardswish,
    "leaky_relu(x, 0.01)": nn.LeakyReLU,
    "": lambda: nn.Softplus(2.0),
}
"""torch's modules by what the language calls them, which it has no word for last."""


class Held:
    """A kernel's class, and a call of its launcher; `given` are a module's arguments.

    `types` are those of the parameters by nn.Linear's names, `values` what they hold.
    """

    def __init__(self, plan: Plan, module: ModuleType, device: torch.device) -> None:
        layer, call = Layer(plan), valid_call(plan, _CASE, device)
        numbers = {name: 0.5 + at for at, name in enumerate(call.numbers)}
        every = {**call.tensors, **numbers}
        self.plan, self.device = plan, device
        self.call = replace(call, numbers=numbers, outputs=None)
        self.launcher = subject.launcher(plan, module)
        place = subject.part(module, MODULE)
        self.kind: Any = getattr(place, public(plan.name, MODULE))
        self.replacing: Any = subject.runtime(module, "layers.replace").replace_linears
        self.activation = layer.activation
        self.inputs = [every[name] for name in plan.argument_names]
        self.given = [every[name] for name in layer.passed]
        self.values = {own: every[name] for name, own in layer.parameters.items()}

    def made(self, **named: Any) -> Any:
        """A module of the call's sizes."""
        return self.kind(_CASE.k, _CASE.n, device=self.device, **named)

    def linear(self, dtype: torch.dtype | None = None) -> Any:
        """torch's own, of the types that the module should have or of another."""
        weight, bias = self.values["weight"], self.values.get("bias")
        named = {"device": self.device, "dtype": dtype or weight.dtype}
        made = nn.Linear(_CASE.k, _CASE.n, bias is not None, **named)
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
    checks = _made, _states, _called, _learned, _followed, _mismatched
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
        weight = one.plan.contraction.first.name
        try:
            own(*one.given)
        except ValueError as error:
            if not str(error).startswith(f"{one.plan.name}: {weight} must not require"):
                raise Wrong(f"a gradient is asked for: {error}") from error
            return
        raise Wrong("a gradient is asked for that there is none of, in silence")
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


def _summed(returned: Any) -> Tensor:
    """One number of all results, each with its own weight."""
    several = returned if isinstance(returned, tuple) else (returned,)
    return sum(at * each.double().sum() for at, each in enumerate(several, 1))


def _followed(one: Held) -> None:
    """It takes the place of nn.Linear and of its own activation, and of no other."""
    for text, activation in _ACTIVATIONS.items():
        model = nn.Sequential(one.filled(one.linear()), activation()).eval()
        before = copy.deepcopy(model)
        if one.activation is None:
            _refused(one, model)
            continue
        told = one.replacing(model, one.kind, dry_run=True)
        if [type(each) for each in model] != [type(each) for each in before]:
            raise Wrong("a dry run replaces something")
        held = [*model.parameters()]
        done = one.replacing(model, one.kind)
        if [*map(str, done)] != [*map(str, told)]:
            raise Wrong(f"a dry run tells {told}, then {done} is done")
        goes = one.activation in ("x", text)
        if isinstance(model[0], one.kind) != goes:
            raise Wrong(f"with {activation()} behind: {done[0]}")
        if any(
            mine is not now for mine, now in zip(held, model.parameters(), strict=True)
        ):
            raise Wrong(f"parameters are not shared: {done[0]}")
        if text == one.activation:
            _judged(one, before, model)


def _refused(one: Held, model: Any) -> None:
    """What does more than a Linear and an activation stands for nothing."""
    try:
        one.replacing(model, one.kind)
    except ValueError:
        return
    raise Wrong(f"{one.kind.__name__} stands for a Linear, and does more")


def _judged(one: Held, before: Any, model: Any) -> None:
    """Hold torch's modules in float64 to the kernel's bound, and what replaced them."""
    with torch.no_grad():
        wide = before.double()(one.given[0].double())
        own = model(*one.given)
    check_results(one.plan, one.call, [wide.to(own.dtype)], _BLOCK)
    check_results(one.plan, one.call, [own], _BLOCK)


def _mismatched(one: Held) -> None:
    """What has other parameters stays, and what is trained where it could not be."""
    if one.activation is None:
        return
    activation = _ACTIVATIONS.get(one.activation, nn.Identity)
    weight_type, has_bias = one.values["weight"].dtype, "bias" in one.values
    other = torch.float32 if weight_type == torch.float64 else torch.float64
    stays = {
        "of another type": one.linear(other),
        "of another bias": nn.Linear(
            _CASE.k, _CASE.n, not has_bias, one.device, weight_type
        ),
    }
    if one.plan.backward is None:
        stays["in training"] = one.linear().train()
    for what, linear in stays.items():
        model = nn.Sequential(linear, activation())
        model.train(what == "in training")
        one.replacing(model, one.kind)
        if model[0] is not linear:
            raise Wrong(f"an nn.Linear {what} is replaced")
