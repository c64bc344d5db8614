"""A kernel under torch.func, and its gradients: alone, by item, around each other."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from gemmgen.verification.example.one_example import several
from gemmgen.verification.operators.derivatives import (
    all_learning,
    gradients,
    same_gradients,
)
from gemmgen.verification.operators.entered import Entered


def check_transforms(one: Entered) -> None:
    """Raise `Wrong` for a gradient that is another than autograd's, or left out.

    And for what a transform has left behind, which has a tensor in it.
    """
    _left_behind(one)
    for check in (_by_functions, _per_item, _nested, _batched) if one.grad else ():
        check(one)


def _left_behind(one: Entered) -> None:
    """It is read as that tensor by way of torch; by itself it has no memory."""
    left: list[Tensor] = []

    def seen(given: Tensor) -> Tensor:
        left.append(given)
        return given.double().sum()

    first, *others = one.mapped(Tensor.detach)
    torch.func.grad(seen)(first)
    with torch.no_grad():  # else torch is asked for a gradient
        found = several(one.launcher(left.pop(), *others))
    one.same("of what a transform left behind", found)
    plain = getattr(one.launcher, "__wrapped__", None)
    if plain is not None:
        torch.vmap(seen)(first[None])
        what = "an item that a transform left behind"
        one.refused(what, one.names[0], lambda: plain(*left, *others))


def _by_functions(one: Entered) -> None:
    """`torch.func` finds the gradients that autograd does."""
    learning, tensors = all_learning(one)
    wanted = gradients(one.launcher, learning)
    plain = [tensor.detach() for tensor in tensors]
    results, pulled = torch.func.vjp(
        lambda *some: tuple(several(one.called_with(*some))), *plain
    )
    one.same("under torch.func", results)
    same_gradients("under torch.func", pulled(results), wanted)


def _summed(one: Entered, *inputs: Any) -> Any:
    """A number that all results of a call take part in."""
    return sum(result.double().sum() for result in several(one.launcher(*inputs)))


def _per_item(one: Entered) -> None:
    """`torch.vmap` over gradients finds those of each item."""
    first, *others = one.mapped(Tensor.detach)
    items = torch.stack([first, 2 * first])
    found = torch.func.grad(lambda a: _summed(one, a, *others))
    wanted = torch.stack([found(item) for item in items])
    same_gradients("per item", [torch.vmap(found)(items)], [wanted])


def _nested(one: Entered) -> None:
    """Gradients around others' are those that they are alone, or refused."""
    first, second, *others = one.mapped(Tensor.detach)
    inner = torch.func.grad_and_value(partial(_summed, one))
    wanted = torch.func.grad(lambda b: _summed(one, first, b, *others))(second)
    try:
        found = torch.func.grad(lambda b: inner(first, b, *others)[1])(second)
    except ValueError:
        return
    same_gradients("around another", [found], [wanted])


def _batched(one: Entered) -> None:
    """Gradients of a batch of results' gradients are those of each."""
    learning, tensors = all_learning(one)
    results = several(one.launcher(*learning))
    given = [torch.ones_like(result) for result in results]
    items = [[at * each for each in given] for at in (1, 2)]
    stacked = [torch.stack(each) for each in zip(*items, strict=True)]
    batched = torch.autograd.grad(
        results, tensors, stacked, retain_graph=True, is_grads_batched=True
    )
    for at, item in enumerate(items):
        wanted = torch.autograd.grad(results, tensors, item, retain_graph=True)
        same_gradients("of a batch", [each[at] for each in batched], wanted)
