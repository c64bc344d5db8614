"""A kernel as an operator of torch: a usual call, and how others compare with it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from gemmgen.select.plan import Plan
from gemmgen.tables.operations import OPERATIONS
from gemmgen.verification.cases.cases import Case
from gemmgen.verification.contract.refusals import valid_call
from gemmgen.verification.example.one_example import Wrong, bits, several

_ROWS, _LEADING, _N, _K = (3,), (2, 3), 5, 7

_VALUES = (Tensor.detach, torch.abs, torch.ones_like)
"""Of tensors: those drawn; of one sign, of which all have a logarithm, say; ones."""
_WITHOUT_VALUES = ("test_schema", "test_autograd_registration", "test_faketensor")
"""What torch checks of an operator but for its results traced, which it compares."""


class Entered:
    """A launcher's call, and what became of it as an operator's."""

    def __init__(
        self, plan: Plan, launcher: Callable[..., Any], device: torch.device
    ) -> None:
        self.rows = _LEADING if OPERATIONS[plan.op].leading else _ROWS
        case = Case(self.rows, _N, _K)
        call = valid_call(plan, case, device)
        values = {**call.tensors, **call.numbers}
        self.launcher: Any = launcher
        self.names, self.device, self.grad = plan.argument_names, device, plan.grad
        self.linear_in = plan.linear_in
        self.inputs = [values[name] for name in self.names]
        self.flops = 2 * case.m * case.n * case.k
        self.wanted = several(launcher(*self.inputs))

    @property
    def overload(self) -> Any:
        """The operator."""
        return self.launcher.operator.overload

    def same(
        self, what: str, returned: Any, wanted: Sequence[Tensor] | None = None
    ) -> None:
        """Raise `Wrong` unless results are the launcher's, bit by bit."""
        results = zip(several(returned), wanted or self.wanted, strict=True)
        for got, want in results:
            alike = (got.shape, got.dtype, got.stride(), got.device) == (
                (want.shape, want.dtype, want.stride(), want.device)
            )
            if not alike or not torch.equal(bits(got), bits(want)):
                raise Wrong(f"{what}: another result than a plain call's")

    def refused(self, what: str, name: str, call: Callable[[], Any]) -> None:
        """Raise `Wrong` unless an argument is refused by its name."""
        wanted = f"{self.launcher.__name__}: {name} must "
        try:
            call()
        except ValueError as error:
            if not str(error).startswith(wanted):
                raise Wrong(f"{what}: not '{wanted}…': {error}") from error
        else:
            raise Wrong(f"{what} of {name}: accepted")

    def tensors(self) -> Iterator[tuple[int, str, Tensor]]:
        """Each argument that is a tensor, with its place and name."""
        for place, (name, one) in enumerate(zip(self.names, self.inputs, strict=True)):
            if isinstance(one, Tensor):
                yield place, name, one

    def with_other(self, place: int, other: Any) -> list[Any]:
        """The arguments with another at a place."""
        return [*self.inputs[:place], other, *self.inputs[place + 1 :]]

    def mapped(self, change: Callable[[Tensor], Tensor]) -> list[Any]:
        """The arguments with each tensor changed."""
        return [
            change(given) if isinstance(given, Tensor) else given
            for given in self.inputs
        ]

    def called_with(self, *tensors: Tensor) -> Any:
        """What a call returns with these tensors in place of its own."""
        left = iter(tensors)
        return self.launcher(*self.mapped(lambda _: next(left)))

    def by_name(self, *inputs: Any) -> Any:
        """What a call returns that names all its arguments."""
        return self.launcher(**dict(zip(self.names, inputs, strict=True)))

    def check_by_torch(
        self, learning: bool, found: Callable[[Sequence[Any]], Sequence[Tensor]]
    ) -> None:
        """Pass what torch checks of operators, with values of which numbers are found.

        To torch NaN is another result than NaN; where nothing else comes of any of the
        values that are tried, it compares no results. Tensors may be `learning`.
        """
        for values in _VALUES:
            given = [
                values(one).requires_grad_(learning) if isinstance(one, Tensor) else one
                for one in self.inputs
            ]
            if all(bool(one.isfinite().all()) for one in found(given)):
                torch.library.opcheck(self.overload, given)
                return
        torch.library.opcheck(self.overload, given, test_utils=_WITHOUT_VALUES)
