"""The exchange of a model's nn.Linear, and of activations behind them, for modules."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from torch import nn

from .base import KernelLinear

# The activations that an epilogue may have, as text of its language.
ACTIVATIONS: dict[type, Callable[[Any], str]] = {
    nn.GELU: lambda one: "gelu(x)" if one.approximate == "none" else "gelu_tanh(x)",
    nn.Hardswish: lambda _: "hardswish(x)",
    nn.LeakyReLU: lambda one: f"leaky_relu(x, {one.negative_slope})",
    nn.ReLU: lambda _: "relu(x)",
    nn.SiLU: lambda _: "silu(x)",
    nn.Sigmoid: lambda _: "sigmoid(x)",
    nn.Softplus: lambda one: "softplus(x)" * ((one.beta, one.threshold) == (1, 20)),
    nn.Tanh: lambda _: "tanh(x)",
}


class Replaced(NamedTuple):
    """What becomes of one nn.Linear of a model.

    `name` is that of the model's submodule, `activation` that of the one behind it
    which goes with it, empty if none does. `by` is the class that takes their place;
    without one `reason` says why they stay.
    """

    name: str
    activation: str = ""
    by: type[KernelLinear] | None = None
    reason: str = ""

    def __str__(self) -> str:
        """In a line."""
        name = self.name or "the model itself"
        if self.by is None:
            return f"{name}: stays, {self.reason}"
        both = f"{name} and {self.activation}" if self.activation else name
        return f"{both}: {self.by.__name__}"


def replace_linears(
    model: nn.Module, *modules: type[KernelLinear], dry_run: bool = False
) -> list[Replaced]:
    """Put generated modules in the place of a model's nn.Linear; return what was done.

    A module whose epilogue is an activation takes the place of an nn.Linear and of the
    activation behind it in an nn.Sequential, where nn.Identity keeps the numbers of
    what follows; one without takes that of any nn.Linear. The first of `modules` that
    can does, those with an activation before others. Parameters are shared, also
    between modules, so `state_dict` and optimizers go on. What is used elsewhere than
    as a submodule, such as in a list, stays as it is; so do subclasses of nn.Linear and
    what has hooks. A `dry_run` changes nothing. Raises ValueError for a module that
    does more than a Linear and an activation.
    """
    for one in modules:
        if one.activation is None:
            does = "takes or returns more than a Linear and an activation do"
            raise ValueError(f"replace_linears: {one.__name__} {does}")
    ordered = sorted(modules, key=lambda one: one.activation == "x")
    every = model.named_modules(remove_duplicate=False)
    order = {name: at for at, (name, _) in enumerate(every)}
    places = sorted(linears(model), key=lambda place: order[place.name])
    found = [judged(place, ordered) for place in places]
    made: dict[tuple[int, type[KernelLinear]], KernelLinear] = {}
    for place, told in zip(places, found, strict=True):
        if told.by is None or dry_run:
            continue
        key = id(place.linear), told.by
        if key not in made:
            made[key] = told.by.of(place.linear)
        setattr(place.parent, place.child, made[key])
        if told.activation:
            setattr(place.parent, told.activation.rpartition(".")[2], nn.Identity())
    return found


class Place(NamedTuple):
    """An nn.Linear of a model, and the sibling that its result goes to, if known."""

    name: str
    linear: nn.Module
    parent: nn.Module | None = None
    child: str = ""
    behind: str = ""
    follower: nn.Module | None = None


def linears(model: nn.Module) -> Iterator[Place]:
    """Yield every place of a model that has an nn.Linear."""
    if is_torchs(model):
        yield Place("", model)
    for path, parent in model.named_modules():
        children = list(parent._modules.items())
        in_turn = type(parent).forward is nn.Sequential.forward
        in_turn = in_turn and "forward" not in vars(parent)
        for at, (child, one) in enumerate(children):
            if is_torchs(one):
                name = f"{path}.{child}".lstrip(".")
                behind, follower = "", None
                if in_turn and at + 1 < len(children):
                    behind, follower = children[at + 1]
                    behind = f"{path}.{behind}".lstrip(".")
                yield Place(name, one, parent, child, behind, follower)


def is_torchs(module: nn.Module | None) -> bool:
    """Return whether it is an nn.Linear that is none of ours."""
    return isinstance(module, nn.Linear) and not isinstance(module, KernelLinear)


def judged(place: Place, modules: Sequence[type[KernelLinear]]) -> Replaced:
    """Return what becomes of a place: the first of the modules that can have it."""
    reason = untouchable(place)
    if reason:
        return Replaced(place.name, reason=reason)
    reasons = []
    for one in modules:
        reason = one.why_not(place.linear)
        if not reason and one.activation == "x":
            return Replaced(place.name, by=one)
        reason = reason or unlike(place, str(one.activation))
        if not reason:
            return Replaced(place.name, place.behind, one)
        reasons.append(f"not {one.__name__}: {reason}")
    return Replaced(place.name, reason="; ".join(reasons) or "no module is given")


def untouchable(place: Place) -> str:
    """Return why nothing may take an nn.Linear's place, whatever it computes."""
    one = place.linear
    if place.parent is None:
        return "for nothing holds it: call the class's `of`"
    if type(one) is not nn.Linear:
        return f"it is a {type(one).__name__}, not nn.Linear itself"
    held = [each for each in one._parameters.values() if each is not None]
    if {*one._parameters} != {"weight", "bias"} or one._buffers or one._modules:
        return "it holds more than a weight and a bias"
    if any(type(each) is not nn.Parameter for each in held):
        return "its parameters are of a class of their own"
    return "it has hooks, or a forward of its own" if watched(one) else ""


def unlike(place: Place, activation: str) -> str:
    """Return why what is behind an nn.Linear is not an activation, empty if it is."""
    follower = place.follower
    if follower is None:
        return f"{activation} does not follow it in an nn.Sequential"
    tell = ACTIVATIONS.get(type(follower))
    if tell is None or tell(follower) != activation:
        return f"{follower} follows it, not {activation}"
    return f"{place.behind} has hooks, or a forward of its own" * watched(follower)


def watched(module: nn.Module) -> bool:
    """Return whether somebody sees, or changes, what a module is called with."""
    own = vars(module)
    hooks = (one for name, one in own.items() if name.endswith("_hooks"))
    return "forward" in own or any(hooks)
