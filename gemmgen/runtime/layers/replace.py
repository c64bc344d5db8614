"""The replacement of a model's nn.Linear, and activations after them, by modules."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from torch import nn

from .base import KernelLinear

# Activations as text of the language of epilogues.
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

    `name` is its name in the model, `activation` that of the activation which is
    replaced with it, or empty. `by` is the class that replaces them; if it is None,
    `reason` says why they stay.
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
    """Replace a model's nn.Linear by generated modules; return what was done.

    A module whose epilogue is an activation replaces an nn.Linear and the activation
    after it in an nn.Sequential, where an nn.Identity keeps the numbering; one without
    replaces any nn.Linear. The first of `modules` that can is taken, those with an
    activation before others. Parameters are shared, not copied, so `state_dict` and
    optimizers go on. Subclasses of nn.Linear, those with hooks, and those that are no
    submodule, as in a list, stay. A `dry_run` changes nothing. Raises ValueError for a
    module that does more than a Linear and an activation, and for what is no module.
    """
    for one in modules:
        if not (isinstance(one, type) and issubclass(one, KernelLinear)):
            name = getattr(one, "__name__", one)
            raise ValueError(f"replace_linears: {name} is no class of a kernel")
        if one.activation is None:
            does = "takes or returns more than a Linear and an activation do"
            raise ValueError(f"replace_linears: {one.__name__} {does}")
    ordered = sorted(modules, key=lambda one: one.activation == "x")
    every = model.named_modules(remove_duplicate=False)
    order = {name: at for at, (name, _) in enumerate(every)}
    places = sorted(linears(model), key=lambda place: order[place.name])
    replaced = [replacement(place, ordered) for place in places]
    new: dict[tuple[int, type[KernelLinear]], KernelLinear] = {}
    for place, done in zip(places, replaced, strict=True):
        if done.by is None or dry_run:
            continue
        key = id(place.linear), done.by
        if key not in new:
            new[key] = done.by.of(place.linear)
        setattr(place.parent, place.child, new[key])
        if done.activation:
            setattr(place.parent, done.activation.rpartition(".")[2], nn.Identity())
    return replaced


class Place(NamedTuple):
    """An nn.Linear in a model, and the module that its result goes to, if known."""

    name: str
    linear: nn.Module
    parent: nn.Module | None = None
    child: str = ""
    next_name: str = ""
    follower: nn.Module | None = None


def linears(model: nn.Module) -> Iterator[Place]:
    """Yield every nn.Linear of a model."""
    if is_plain_linear(model):
        yield Place("", model)
    for path, parent in model.named_modules():
        children = list(parent._modules.items())
        sequential = type(parent).forward is nn.Sequential.forward
        sequential = sequential and "forward" not in vars(parent)
        for at, (child, one) in enumerate(children):
            if is_plain_linear(one):
                name = f"{path}.{child}".lstrip(".")
                next_name, follower = "", None
                if sequential and at + 1 < len(children):
                    next_name, follower = children[at + 1]
                    next_name = f"{path}.{next_name}".lstrip(".")
                yield Place(name, one, parent, child, next_name, follower)


def is_plain_linear(module: nn.Module | None) -> bool:
    """Return whether a module is an nn.Linear but no `KernelLinear`."""
    return isinstance(module, nn.Linear) and not isinstance(module, KernelLinear)


def replacement(place: Place, modules: Sequence[type[KernelLinear]]) -> Replaced:
    """Return which of the modules replaces an nn.Linear, or why none does."""
    reason = why_kept(place)
    if reason:
        return Replaced(place.name, reason=reason)
    reasons = []
    for one in modules:
        reason = one.why_not(place.linear)
        if not reason and one.activation == "x":
            return Replaced(place.name, by=one)
        reason = reason or why_not_activation(place, str(one.activation))
        if not reason:
            return Replaced(place.name, place.next_name, one)
        reasons.append(f"not {one.__name__}: {reason}")
    return Replaced(place.name, reason="; ".join(reasons) or "no module is given")


def why_kept(place: Place) -> str:
    """Return why no module may replace an nn.Linear; empty if one may."""
    one = place.linear
    if place.parent is None:
        return "for nothing holds it: call the class's `of`"
    if type(one) is not nn.Linear:
        return f"it is a {type(one).__name__}, not nn.Linear itself"
    parameters = [each for each in one._parameters.values() if each is not None]
    if {*one._parameters} != {"weight", "bias"} or one._buffers or one._modules:
        return "it holds more than a weight and a bias"
    if any(type(each) is not nn.Parameter for each in parameters):
        return "its parameters are of a class of their own"
    return "it has hooks, or a forward of its own" if is_hooked(one) else ""


def why_not_activation(place: Place, activation: str) -> str:
    """Return why an activation does not follow an nn.Linear; empty if it does."""
    follower = place.follower
    if follower is None:
        return f"{activation} does not follow it in an nn.Sequential"
    text = ACTIVATIONS.get(type(follower))
    if text is None or text(follower) != activation:
        return f"{follower} follows it, not {activation}"
    return f"{place.next_name} has hooks, or a forward of its own" * is_hooked(follower)


def is_hooked(module: nn.Module) -> bool:
    """Return whether a module has hooks, or a forward of its own."""
    own = vars(module)
    hooks = (one for name, one in own.items() if name.endswith("_hooks"))
    return "forward" in own or any(hooks)
