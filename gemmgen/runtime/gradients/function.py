"""Launchers that autograd can differentiate.

A launcher enters autograd only where a gradient is asked for; any other call does not
know of it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..checks import refuse_out
from ..support import transformed


class Gradient:
    """The backward of a launcher, whose name `kernel` begins each error.

    The launcher returns so many `results`. `saves` gives what of its inputs and results
    `backward` needs: tensors, then so many `numbers`. A `forward` returns further
    values after the results for it; without one the launcher is called.
    `backward(saved, grads, needs)` gives the gradients of all inputs, None for those
    that are not among `needs`.
    """

    def __init__(
        self,
        kernel: str,
        results: int,
        saves: Callable[..., tuple[Any, ...]],
        backward: Callable[..., Sequence[Any]],
        forward: Callable[..., Any] | None = None,
        numbers: int = 0,
    ) -> None:
        self.kernel = kernel
        self.results = results
        self.saves = saves
        self.backward = backward
        self.forward: Any = forward
        self.numbers = numbers

    def asked(self, inputs: Sequence[Any]) -> bool:
        """Return whether somebody wants the gradient of an input."""
        return torch.is_grad_enabled() and any(map(learns, inputs))

    def call(self, launcher: Any, names: Sequence[str], inputs: Any, out: Any) -> Any:
        """Return what the launcher returns, for autograd to differentiate.

        Raise ValueError for given memory, whose history autograd would not know.
        """
        if out is not None:
            name = next(n for n, one in zip(names, inputs, strict=True) if learns(one))
            refuse_out(self.kernel, name)
        return self.apply(self.forward or launcher, inputs)

    def apply(self, launcher: Any, inputs: Sequence[Any]) -> Any:
        """Return what a launcher, the `forward` if there is one, does in a graph."""
        if not transformed():
            return Differentiable.apply(self, launcher, *inputs)
        # As a level of torch.func enters the functions that it has taken apart: the
        # operators that this one calls go down to the next level by themselves.
        with torch._functorch.utils.enable_single_level_autograd_function():
            return entered(self, launcher, *inputs)

    def repeat(self, launcher: Any, inputs: Sequence[Any]) -> Any:
        """Do so outside of torch.func, for plain tensors: in half the time."""
        return entered(self, launcher, *inputs)


class Differentiable(torch.autograd.Function):  # type: ignore[misc]
    """A call of a launcher in a graph of autograd."""

    @staticmethod
    def forward(ctx: Any, gradient: Gradient, launcher: Any, *inputs: Any) -> Any:
        """Launch, and save what the backward needs."""
        made = launcher(*inputs)
        if not isinstance(made, tuple):
            made = (made,)
        saved = gradient.saves(*inputs, *made)
        tensors = len(saved) - gradient.numbers
        ctx.save_for_backward(*saved[:tensors])
        ctx.set_materialize_grads(False)
        if gradient.results == 1:
            ctx.told = gradient, saved[tensors:], (), transformed()
            return made[0]
        results = made[: gradient.results]
        likes = [(one.shape, one.dtype) for one in results]
        ctx.told = gradient, saved[tensors:], likes, transformed()
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Return the gradients of the inputs that need them.

        Raise RuntimeError where these are to be differentiated again: a term of a
        second derivative would be missing, and nobody would know. torch.func always
        says so; there it is raised when somebody does.
        """
        gradient, numbers, likes, functional = ctx.told
        again = torch.is_grad_enabled()
        if again and not functional:
            raise RuntimeError(
                f"{gradient.kernel} has no second derivative: leave out "
                "create_graph=True"
            )
        if all(grad is None for grad in grads):
            return (None,) * len(ctx.needs_input_grad)
        needs = ctx.needs_input_grad[2:]
        every = filled(grads, likes) if likes else grads
        given = [one.resolve_neg() for one in every]  # for kernels read what is stored
        saved = [*ctx.saved_tensors, *numbers]
        if not functional:
            ctx.maybe_clear_saved_tensors()  # not if the graph is retained
        if not again:
            return None, None, *gradient.backward(handed_over(saved), given, needs)
        with torch.no_grad():
            made = gradient.backward(saved, given, needs)
        sources = *given, *ctx.saved_tensors
        last = [
            one if one is None else Last.apply(gradient.kernel, one, *sources)
            for one in made
        ]
        return None, None, *last


# The entry of functions into autograd, behind what each has to be asked once: whether
# torch.func is about.
entered: Callable[..., Any] = super(torch.autograd.Function, Differentiable).apply


class Last(torch.autograd.Function):  # type: ignore[misc]
    """A gradient that was computed from `sources`, with no derivative of its own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(kernel: str, made: torch.Tensor, *sources: torch.Tensor) -> Any:
        """Return it as it is."""
        return made.view_as(made)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep whose it is."""
        ctx.kernel = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Raise RuntimeError."""
        raise RuntimeError(f"{ctx.kernel} has no second derivative")


def learns(value: Any) -> bool:
    """Return whether a value is a tensor whose gradient somebody wants."""
    return isinstance(value, torch.Tensor) and value.requires_grad


def handed_over(values: list[Any]) -> Iterator[Any]:
    """Return values one by one, each held by nobody here once it was returned.

    So whoever takes what was saved for a backward may free it before the end.
    """
    while values:
        yield values.pop(0)


def filled(grads: Sequence[Any], likes: Sequence[Any]) -> list[torch.Tensor]:
    """Return gradients of results like these, with what was left out: zeros, all one.

    They are of the class of those that there are, such as DTensors.
    """
    some = next(grad for grad in grads if grad is not None)
    return [
        some.new_zeros((), dtype=dtype).expand(shape) if grad is None else grad
        for grad, (shape, dtype) in zip(grads, likes, strict=True)
    ]


def main_grad_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return what the gradient of a tensor is to be added to, if it has that."""
    found: torch.Tensor | None = getattr(tensor, "main_grad", None)
    return found


def matrix(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor [..., columns] as a matrix, in place if its strides allow it."""
    return tensor.reshape(math.prod(tensor.shape[:-1]), tensor.shape[-1])


def shaped(grad: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor | None:
    """Return a gradient in the shape of what it is the gradient of."""
    return None if grad is None else grad.view(like.shape)
