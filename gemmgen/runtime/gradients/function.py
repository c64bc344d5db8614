"""Launchers that autograd can differentiate; other calls do not come here."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from ..checks import refuse_out
from ..support import in_transform, requires_grad


class Gradient:
    """The backward of a launcher, whose name `kernel` begins each error.

    `results` counts the launcher's results. `saves` returns what `backward` needs of
    inputs and results for the inputs that need a gradient: tensors, then so many other
    values as are `beside` them. A `forward` is called in place of the launcher, and
    returns further values after the results, for `saves`.
    `backward(saved, grads, needs)` returns a gradient for each input, None for numbers
    and where `needs` says that nobody needs one. Of `grads` too one is None where a
    result has none: that counts for nothing, where zeros times infinity would be NaN.
    """

    def __init__(
        self,
        kernel: str,
        results: int,
        saves: Callable[..., tuple[Any, ...]],
        backward: Callable[..., Sequence[Any]],
        forward: Callable[..., Any] | None = None,
        beside: int = 0,
    ) -> None:
        self.kernel = kernel
        self.results = results
        self.saves = saves
        self.backward = backward
        self.forward: Any = forward
        self.beside = beside

    def call(self, launcher: Any, names: Sequence[str], inputs: Any, out: Any) -> Any:
        """Return results that autograd can differentiate; ValueError for `out`."""
        if out is not None:
            named = zip(names, inputs, strict=True)
            refuse_out(self.kernel, next(n for n, one in named if requires_grad(one)))
        try:
            return self.apply(self.forward or launcher, inputs)
        except ValueError:
            self.refuse(launcher.__wrapped__, inputs)
            raise

    def refuse(self, launcher: Any, inputs: Sequence[Any]) -> None:
        """Raise what the launcher says of inputs by its own name, not the forward's."""
        try:
            with torch.no_grad():
                launcher(*inputs)
        except ValueError as error:
            raise error from None

    def apply(self, launcher: Any, inputs: Sequence[Any]) -> Any:
        """Call a launcher, or the `forward`, as a node of autograd's graph."""
        if not in_transform():
            return Differentiable.apply(self, launcher, *inputs)
        # torch.func enters its own functions so: the operators that the launcher calls
        # reach the next level by themselves.
        with torch._functorch.utils.enable_single_level_autograd_function():
            return entered(self, launcher, *inputs)

    def repeat(self, launcher: Any, inputs: Sequence[Any]) -> Any:
        """Do the same outside of torch.func, for plain tensors, in half the time."""
        return entered(self, launcher, *inputs)


class Differentiable(torch.autograd.Function):  # type: ignore[misc]
    """A call of a launcher as a node of autograd's graph."""

    @staticmethod
    def forward(ctx: Any, gradient: Gradient, launcher: Any, *inputs: Any) -> Any:
        """Launch, and save what the backward needs."""
        results = launcher(*inputs)
        if not isinstance(results, tuple):
            results = (results,)
        needs = ctx.needs_input_grad[2:]
        saved = gradient.saves(needs, *inputs, *results)
        tensors = len(saved) - gradient.beside
        ctx.save_for_backward(*saved[:tensors])
        ctx.set_materialize_grads(False)
        ctx.call = gradient, saved[tensors:], in_transform()
        return results[0] if gradient.results == 1 else results[: gradient.results]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Return the gradients of the inputs that need them.

        Raises RuntimeError if these are to be differentiated again, since terms of the
        second derivative would be missing. torch.func always prepares for that: there
        it is raised only if somebody does differentiate again.
        """
        gradient, beside, functional = ctx.call
        again = torch.is_grad_enabled()
        if again and not functional:
            raise RuntimeError(
                f"{gradient.kernel} has no second derivative: leave out "
                "create_graph=True"
            )
        if all(grad is None for grad in grads):
            return (None,) * len(ctx.needs_input_grad)
        needs = ctx.needs_input_grad[2:]
        # Kernels read what is stored.
        given = [one if one is None else one.resolve_neg() for one in grads]
        saved = [*ctx.saved_tensors, *beside]
        if not functional:
            ctx.maybe_clear_saved_tensors()  # not if the graph is retained
        if not again:
            return None, None, *gradient.backward(drained(saved), given, needs)
        with torch.no_grad():
            made = gradient.backward(saved, given, needs)
        sources = *given, *ctx.saved_tensors
        once = partial(OnceDifferentiable.apply, gradient.kernel)
        last = [None if one is None else once(one, *sources) for one in made]
        return None, None, *last


# The entry into autograd below the check for torch.func.
entered: Callable[..., Any] = super(torch.autograd.Function, Differentiable).apply


class OnceDifferentiable(torch.autograd.Function):  # type: ignore[misc]
    """A gradient that was computed from `sources` and has no derivative itself."""

    generate_vmap_rule = True

    @staticmethod
    def forward(kernel: str, made: torch.Tensor, *sources: torch.Tensor) -> Any:
        """Return the gradient."""
        return made.view_as(made)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep the kernel's name."""
        ctx.kernel = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Raise RuntimeError."""
        raise RuntimeError(f"{ctx.kernel} has no second derivative")

    jvp = backward


def drained(values: list[Any]) -> Iterator[Any]:
    """Yield values, and drop each, so that a backward can free it before the end."""
    while values:
        yield values.pop(0)


def leaf_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a tensor if it is a leaf that learns, which the graph holds anyway.

    What is saved may come back as another tensor, without the attributes of the leaf:
    where a checkpoint computes it again, or a hook had it elsewhere meanwhile.
    """
    return tensor if tensor.requires_grad and tensor.is_leaf else None


def main_grad_of(leaf: torch.Tensor | None, grad: torch.Tensor) -> torch.Tensor | None:
    """Return the `main_grad` that a leaf's gradient is added to, if it has one.

    None for a batch of gradients, which are returned, an item each.
    """
    if torch._C._functorch.is_legacy_batchedtensor(grad):
        return None
    found: torch.Tensor | None = getattr(leaf, "main_grad", None)
    return found


def matrix(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """Return a tensor [..., columns] as a matrix, a view if its strides allow it."""
    if tensor is None:
        return None
    return tensor.reshape(math.prod(tensor.shape[:-1]), tensor.shape[-1])


def unflattened(matrix: torch.Tensor, *grads: torch.Tensor | None) -> torch.Tensor:
    """Return a gradient [M, columns] with the leading sizes of those of results."""
    given = next(one for one in grads if one is not None)
    return matrix.view(*given.shape[:-1], matrix.shape[-1])


def shaped(grad: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor | None:
    """Return a gradient in the shape of its input."""
    return None if grad is None else grad.view(like.shape)
