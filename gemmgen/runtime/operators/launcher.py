"""What the file of a launcher imports: the decorator `launcher`, checks, launches."""

from collections.abc import Callable, Collection
from typing import Any, ParamSpec, TypeVar

from ..checks import Checks
from ..dispatch import Launches
from ..launch_cache import Cached, launch_cache
from ..support import rows
from .operator import torch_operator

__all__ = ["Checks", "Launches", "launcher", "rows"]

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


def launcher(
    launches: Launches,
    *by_row: str,
    gradient: Any = None,
    linear_in: Collection[str] | None = None,
) -> Callable[[Callable[P, R]], Cached[P, R]]:
    """Return a decorator that gives a launcher a launch cache and an operator.

    `by_row` and `gradient` are those of `launch_cache`, `linear_in` is that of
    `torch_operator`.
    """
    cached = launch_cache(*by_row, gradient=gradient)
    registered = torch_operator(launches, linear_in)

    return lambda function: registered(cached(function))
