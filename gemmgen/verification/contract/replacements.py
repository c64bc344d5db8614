"""What a kernel's nn.Module takes the place of in a model, and what it must not.

Held to what torch's modules compute.
"""

import copy
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn

from gemmgen.select.plan import Plan
from gemmgen.verification.contract.layers import Held
from gemmgen.verification.example.one_example import Wrong, check_results
from gemmgen.verification.oracle.comparison import Block

_PLAIN = "x"
_BLOCK = Block(16, 16, 16)
_ACTIVATIONS: dict[str, Callable[[], Any]] = {
    _PLAIN: nn.Identity,
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


class Exchange:
    """A class, and a model's layers that it may take the place of."""

    def __init__(self, plan: Plan, module: ModuleType, device: torch.device) -> None:
        self.held = held = Held(plan, module, device)
        self.kind, self.name = held.kind, held.kind.__name__
        self.made = _ACTIVATIONS.get(str(held.activation), nn.Identity)

    def linear(self, mode: bool = False) -> Any:
        """An nn.Linear that the class may have, in training or not."""
        return self.held.filled(self.held.linear()).train(mode)

    def told(self, model: Any, *kinds: Any, dry_run: bool = False) -> list[str]:
        """What the exchange says of a model's layers."""
        found = self.held.replacing(model, *kinds or (self.kind,), dry_run=dry_run)
        return [*map(str, found)]

    def goes(self, what: str, linear: Any) -> None:
        """Hold that an nn.Linear, and its activation, give way."""
        model = nn.Sequential(linear, self.made())
        told = self.told(model)
        both = "0" if self.held.activation == _PLAIN else "0 and 1"
        if told != [f"{both}: {self.name}"] or type(model[0]) is not self.kind:
            raise Wrong(f"an nn.Linear {what}: {told}")
        if [*model._modules] != ["0", "1"]:
            raise Wrong(f"an nn.Linear {what} leaves {[*model._modules]}")

    def stays(self, what: str, linear: Any, why: str) -> None:
        """Hold that an nn.Linear is left, though its activation follows, and why."""
        model = nn.Sequential(linear, self.made())
        told = self.told(model)
        if model[0] is not linear or len(told) != 1:
            raise Wrong(f"an nn.Linear {what}: {told}")
        if not told[0].startswith("0: stays, ") or why not in told[0]:
            raise Wrong(f"an nn.Linear {what} stays, and is told as {told[0]}")


def check_replacements(plan: Plan, module: ModuleType, device: torch.device) -> int:
    """Raise `Wrong` for what is not as it must be; how many things were tried."""
    one = Exchange(plan, module, device)
    if one.held.activation is None:
        _refused(one)
        return 1
    checks = _no_class, _followed, _mismatched, _its_own, _places, _shared
    for check in checks:
        check(one)
    return len(checks)


def _refused(one: Exchange) -> None:
    """What does more than a Linear and an activation stands for nothing."""
    try:
        one.told(nn.Sequential(one.linear()))
    except ValueError as error:
        if one.name not in str(error):
            raise Wrong(f"not refused by its name: {error}") from error
    else:
        raise Wrong(f"{one.name} stands for an nn.Linear, and does more")


def _no_class(one: Exchange) -> None:
    """What is no class of a kernel stands for nothing: another's, or a module."""
    model = nn.Sequential(one.linear(), one.made())
    for other in (nn.Linear, one.held.made()):
        try:
            one.told(model, other)
        except ValueError as error:
            if "is no class of a kernel" in str(error):
                continue
            raise Wrong(f"{other} stands for an nn.Linear: {error}") from error
        raise Wrong(f"{other} stands for an nn.Linear")


def _followed(one: Exchange) -> None:
    """It takes the place of nn.Linear and of its own activation, and of no other."""
    mine = one.held.activation
    for text, activation in _ACTIVATIONS.items():
        model = nn.Sequential(one.linear(), activation()).eval()
        before = copy.deepcopy(model)
        told = one.told(model, dry_run=True)
        if [type(each) for each in model] != [type(each) for each in before]:
            raise Wrong("a dry run replaces something")
        held = [*model.parameters()]
        done = one.told(model)
        if done != told:
            raise Wrong(f"a dry run tells {told}, then {done} is done")
        if (type(model[0]) is one.kind) != (mine in (_PLAIN, text)):
            raise Wrong(f"with {activation()} behind: {done}")
        if [*map(id, held)] != [*map(id, model.parameters())]:
            raise Wrong(f"parameters are not shared: {done}")
        if text == mine:
            _judged(one.held, before, model)


def _judged(held: Held, before: Any, model: Any) -> None:
    """Hold torch's modules in float64 to the kernel's bound, and what replaced them."""
    with torch.no_grad():
        wide = before.double()(held.given[0].double())
        own = model(*held.given)
    for result in (wide.to(own.dtype), own):
        check_results(held.plan, held.call, [result], _BLOCK)


def _mismatched(one: Exchange) -> None:
    """What has other parameters stays, and what is trained where it could not be."""
    made, trains = one.linear(), one.held.plan.backward is not None
    weight, bias = made.weight, made.bias
    other = torch.float32 if weight.dtype == torch.float64 else torch.float64
    one.stays("of another type", one.held.linear(other).eval(), f"weight is {other}")
    bare = nn.Linear(*weight.shape[::-1], bias is None, weight.device, weight.dtype)
    one.stays("of another bias", bare.eval(), "bias is ")
    if bias is not None:
        made.bias = nn.Parameter(bias.detach().to(other))
        one.stays("with another type of bias", made, f"bias is {other}")
    if trains:
        one.goes("in training", one.linear(True))
    else:
        one.stays("in training", one.linear(True), "in training")
        one.goes("that learns nothing", one.linear(True).requires_grad_(False))
    kernel = SimpleNamespace(gradient=True)
    taught: Any = type("Taught", (one.kind,), {"kernel": kernel})
    model = nn.Sequential(one.linear(True), one.made())
    one.told(model, taught)
    if type(model[0]) is not taught:
        raise Wrong("an nn.Linear in training stays, though the kernel has a gradient")


class _Own(nn.Linear):  # type: ignore[misc]
    """Somebody's Linear that may do something else."""


def _changed(one: Exchange) -> Iterator[tuple[str, Any, str]]:
    """Kinds of nn.Linear that hold or do more than it does, with why they stay."""
    linear = one.linear()
    weight, has_bias = linear.weight, linear.bias is not None
    own = _Own(*weight.shape[::-1], has_bias, weight.device, weight.dtype)
    yield "of a subclass", own, "it is a _Own"
    linear.register_buffer("mask", torch.ones(1))
    yield "with a buffer", linear, "it holds more"
    linear = one.linear()
    linear.adapter = nn.Identity()
    yield "with a submodule", linear, "it holds more"
    linear = one.linear()
    linear.scale = nn.Parameter(torch.ones(1))
    yield "with another parameter", linear, "it holds more"
    linear = one.linear()
    linear.weight = _Wrapped(linear.weight.detach())
    yield "of a parameter that acts by itself", linear, "of a class of their own"
    linear = one.linear()
    linear.register_forward_hook(lambda *_: None)
    yield "with a hook", linear, "it has hooks"
    linear = one.linear()
    linear.forward = lambda x: x
    yield "with a forward of its own", linear, "a forward of its own"


class _Wrapped(nn.Parameter):  # type: ignore[misc]
    """A parameter of another class, as of quantized weights."""


def _its_own(one: Exchange) -> None:
    """What holds or does more than nn.Linear stays; what is only told of goes along."""
    for what, linear, why in _changed(one):
        one.stays(what, linear, why)
    linear = one.linear()
    linear.mark = "kept"
    model = nn.Sequential(linear, one.made())
    one.told(model)
    if getattr(model[0], "mark", "") != "kept" or model[0].training:
        raise Wrong("an attribute of an nn.Linear, or its mode, is lost")


def _places(one: Exchange) -> None:
    """Where a model has an nn.Linear, and what follows it, decides as it must."""
    hooked, patched = one.made(), nn.Sequential(one.linear(), one.made())
    hooked.register_forward_hook(lambda *_: None)
    patched.forward = lambda x: x
    layers = {
        "hooked": nn.Sequential(one.linear(), hooked),
        "patched": patched,
        "last": nn.Sequential(nn.Identity(), one.linear()),
        "up": one.linear(),
        "act": one.made(),
        "inner": nn.ModuleList([nn.Sequential(one.linear(), one.made())]),
    }
    model, stays = nn.ModuleDict(layers).eval(), f": stays, not {one.name}: "
    unseen = f"{stays}{one.held.activation} does not follow it in an nn.Sequential"
    wanted = [
        f"hooked.0{stays}hooked.1 has hooks, or a forward of its own",
        f"patched.0{unseen}",
        f"last.1{unseen}",
        f"up{unseen}",
        f"inner.0.0 and inner.0.1: {one.name}",
    ]
    if one.held.activation == _PLAIN:
        places = ("hooked.0", "patched.0", "last.1", "up", "inner.0.0")
        wanted = [f"{place}: {one.name}" for place in places]
    for left in (wanted, [line for line in wanted if "stays" in line]):
        told = one.told(model)
        if told != left:
            raise Wrong(f"of a model is told {told}, not {left}")
        if type(layers["inner"][0][0]) is not one.kind:
            raise Wrong(f"what is told is not done: {told[-1]}")


def _shared(one: Exchange) -> None:
    """A layer in two places is one again, by each class; what nothing holds stays."""
    linear, root = one.linear(), one.linear()
    other: Any = type("Other", (one.kind,), {"activation": _PLAIN})
    pairs = [nn.Sequential(linear, one.made()) for _ in range(2)]
    model: Any = nn.Sequential(*pairs, nn.Sequential(linear)).eval()
    one.told(model, other, one.kind)
    first, second, third = (model.get_submodule(f"{at}.0") for at in range(3))
    kind: Any = other if one.held.activation == _PLAIN else one.kind
    if first is not second or type(first) is not kind:
        raise Wrong("an nn.Linear in two places becomes two modules")
    if type(third) is not other or third.weight is not linear.weight:
        raise Wrong("an nn.Linear of which each place has its own class")
    several = nn.ModuleList(nn.Sequential(one.linear(), one.made()) for _ in range(2))
    one.told(several.eval())
    if several[0][0] is several[1][0]:
        raise Wrong("two nn.Linear become one module")
    (told,) = one.told(root)
    if not told.startswith("the model itself: stays, for nothing holds it"):
        raise Wrong(f"a model that is an nn.Linear: {told}")
    if one.held.replacing(nn.Sequential(root))[0].reason != "no module is given":
        raise Wrong("no class is given, and none is missed")
    if one.told(one.held.made()):
        raise Wrong("one of ours is taken for an nn.Linear")
