"""Rules that bound errors, computed and in words: what rows of `functions.OPS` hold.

torch is handed in, never imported here.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Tensor = Any
"""A float64 torch tensor."""


@dataclass(frozen=True)
class Rule:
    """A bound on an error: how it is computed, and the same in words.

    In words f is the result, x, y… are the arguments, and e is an argument's error.
    """

    text: str
    bound: Callable[..., Tensor]

    def __call__(self, torch: Any, *tensors: Tensor) -> Tensor:
        """The bound, elementwise."""
        return self.bound(torch, *tensors)


def power_text(value: float) -> str:
    """`2^-24` for a power of two, else the number: 3."""
    exponent = math.log2(value)
    far = exponent == int(exponent) and abs(exponent) > 3
    return f"2^{int(exponent)}" if far else f"{value:g}"


def lipschitz(constant: float) -> Rule:
    """A function whose slope is never over the constant."""
    text = "e" if constant == 1 else f"{constant:g} e"
    return Rule(text, lambda torch, x, dx: constant * dx)


def _largest_error(torch: Any, *values: Tensor) -> Tensor:
    errors = values[len(values) // 2 :]
    result = errors[0]
    for error in errors[1:]:
        result = torch.maximum(result, error)
    return result


LARGEST = Rule("the largest e, for the result is one of the arguments", _largest_error)

NONE = Rule("0", lambda torch, result, *arguments: torch.zeros_like(result))


def relative(units: float) -> Rule:
    """Some units of the result."""
    text = "|f|" if units == 1 else f"{units:g} |f|"
    return Rule(text, lambda torch, result, *arguments: units * result.abs())


def beside_argument(units: float) -> Rule:
    """Where x is multiplied by something near 0 that is found by subtraction."""
    return Rule(
        f"{units:g} (|f| + |x|)",
        lambda torch, result, x: units * (result.abs() + x.abs()),
    )


def beside_one(units: float) -> Rule:
    """Where the result, or the argument of a logarithm, is a sum with 1 or near it."""
    return Rule(
        f"{units:g} (|f| + 1)", lambda torch, result, x: units * (result.abs() + 1.0)
    )


def through_exp(units: float, slope: float) -> Rule:
    """exp is taken as 2^(x log2 e) in one rounding, so its error grows with |x|."""
    return Rule(
        f"({units:g} + {slope:g} |x|) |f|",
        lambda torch, result, x: (units + slope * x.abs()) * result.abs(),
    )


def through_small_exp(units: float, slope: float, lost: float = 0.0) -> Rule:
    """Of 1 / (1 + exp(-x)): for positive x the error of exp fades against the 1."""
    return Rule(
        f"({units:g} + {slope:g} max(-x, 0)) |f|"
        + (f" + {power_text(lost)}" if lost else ""),
        lambda torch, result, x: (
            (units + slope * torch.relu(-x)) * result.abs() + lost
        ),
    )


def fading(units: float, slope: float, most: float) -> Rule:
    """Of softplus: the error of exp(-|x|), 2 |x| units of it, is never over 0.75."""
    return Rule(
        f"{units:g} |f| + min({slope:g} |x f|, {most:g})",
        lambda torch, result, x: (
            units * result.abs() + (slope * x.abs() * result.abs()).clamp(max=most)
        ),
    )


def jumping(place: float, size: float) -> Rule:
    """Of softplus: where it becomes x itself, it jumps by log1p(exp(-place))."""
    return Rule(
        f"e, and {size:g} more where x may be {place:g}",
        lambda torch, x, dx: dx + torch.where((x - place).abs() <= dx, size, 0.0),
    )


def where_positive(text: str, bound: Callable[..., Tensor]) -> Rule:
    """A bound for x > e; else none, but nothing where the argument is exact."""
    return Rule(
        f"{text}; no bound where x may be 0 or less",
        lambda torch, x, dx: torch.where(
            x > dx,
            bound(torch, x, dx),
            torch.where(dx > 0, torch.inf, torch.zeros_like(dx)),
        ),
    )
