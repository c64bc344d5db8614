"""Launchers that autograd can differentiate.

A launcher enters autograd only where a gradient is asked for; any other call does not
know of it.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..support import transformed


class Gradient:
    """The backward of a launcher that returns so many `results`.

    `saves` gives what of its inputs and results `backward` needs. A `forward` returns
    further values after the results for it; without one the launcher is called.
    `backward(saved, grads, needs)` gives the gradients of all inputs, None for those
    that are not among `needs`.
    """

    def __init__(
        self,
        results: int,
        saves: Callable[..., Sequence[Any]],
        backward: Callable[..., Sequence[Any]],
        forward: Callable[..., Any] | None = None,
    ) -> None:
        self.results = results
        self.saves = saves
        self.backward = backward
        self.forward = forward

    def asked(self, inputs: Sequence[Any]) -> bool:
        """Return whether somebody wants the gradient of an input."""
        return torch.is_grad_enabled() and any(map(learns, inputs))

    def call(self, launcher: Any, names: Sequence[str], inputs: Any, out: Any) -> Any:
        """Return what the launcher returns, for autograd to differentiate.

        Raise ValueError for given memory, whose history autograd would not know.
        """
        if out is not None:
            name = next(n for n, one in zip(names, inputs, strict=True) if learns(one))
            refuse_out(launcher.__name__, name)
        return self.apply(launcher.__name__, self.forward or launcher, inputs)

    def apply(self, kernel: str, launcher: Any, inputs: Sequence[Any]) -> Any:
        """Return what a launcher, the `forward` if there is one, does in a graph."""
        told = self, kernel, launcher, *inputs
        if not transformed():
            return Differentiable.apply(*told)
        # As a level of torch.func enters the functions that it has taken apart: the
        # operators that this one calls go down to the next level by themselves.
        with torch._functorch.utils.enable_single_level_autograd_function():
            above: Any = super(torch.autograd.Function, Differentiable)
            return above.apply(*told)


class Differentiable(torch.autograd.Function):  # type: ignore[misc]
    """A call of a launcher in a graph of autograd."""

    @staticmethod
    def forward(
        ctx: Any, gradient: Gradient, kernel: str, launcher: Any, *inputs: Any
    ) -> Any:
        """Launch, and save what the backward needs."""
        returned = launcher(*inputs)
        made = returned if isinstance(returned, tuple) else (returned,)
        saved = gradient.saves(*inputs, *made)
        ctx.numbers = [None if is_tensor(one) else one for one in saved]
        ctx.save_for_backward(*filter(is_tensor, saved))
        ctx.set_materialize_grads(False)
        results = made[: gradient.results]
        ctx.likes = [(one.shape, one.dtype) for one in results]
        ctx.gradient, ctx.kernel, ctx.functional = gradient, kernel, transformed()
        return results[0] if gradient.results == 1 else results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Return the gradients of the inputs that need them.

        Raise RuntimeError where these are to be differentiated again: a term of a
        second derivative would be missing, and nobody would know. torch.func always
        says so; there it is raised when somebody does.
        """
        again = torch.is_grad_enabled()
        if again and not ctx.functional:
            raise RuntimeError(
                f"{ctx.kernel} has no second derivative: leave out create_graph=True"
            )
        tensors = iter(ctx.saved_tensors)
        saved = [next(tensors) if one is None else one for one in ctx.numbers]
        some = next((grad for grad in grads if grad is not None), None)
        if some is None:
            return (None,) * len(ctx.needs_input_grad)
        given = [
            nothing(some, *like) if grad is None else grad
            for grad, like in zip(grads, ctx.likes, strict=True)
        ]
        needs = ctx.needs_input_grad[3:]
        if not again:
            return None, None, None, *ctx.gradient.backward(saved, given, needs)
        with torch.no_grad():
            made = ctx.gradient.backward(saved, given, needs)
        sources = *given, *ctx.saved_tensors
        last = [
            one if one is None else Last.apply(ctx.kernel, one, *sources)
            for one in made
        ]
        return None, None, None, *last


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


def is_tensor(value: Any) -> bool:
    """Return whether a value is no number."""
    return isinstance(value, torch.Tensor)


def learns(value: Any) -> bool:
    """Return whether a value is a tensor whose gradient somebody wants."""
    return is_tensor(value) and value.requires_grad


def refuse_out(kernel: str, name: str) -> None:
    """Raise ValueError for given memory, whose history autograd would not know."""
    raise ValueError(
        f"{kernel}: {name} must not require a gradient where out is given: leave that "
        "away, or call under torch.no_grad()"
    )


def nothing(some: torch.Tensor, shape: Any, dtype: torch.dtype) -> torch.Tensor:
    """Return the gradient of a result that nobody used: zeros, all of them one.

    They are of the class of `some` other gradient, such as a DTensor.
    """
    return some.new_zeros((), dtype=dtype).expand(shape)


def matrix(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor [..., columns] as a matrix, in place if its strides allow it."""
    return tensor.reshape(math.prod(tensor.shape[:-1]), tensor.shape[-1])


def shaped(grad: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor | None:
    """Return a gradient in the shape of what it is the gradient of."""
    return None if grad is None else grad.view(like.shape)
