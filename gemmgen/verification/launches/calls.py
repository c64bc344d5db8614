"""One call of a launcher: what is known of it, and its tensors.

The tensors are never written; their sizes may be any.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from gemmgen.select.plan import Plan
from gemmgen.tables.operations import OPERATIONS
from gemmgen.verification.cases.cases import Case, numbers
from gemmgen.verification.cases.views import VIEWS, View
from gemmgen.verification.example.one_example import input_shapes
from gemmgen.verification.oracle.reference import torch_dtype
from gemmgen.verification.stand_in.tensors import Gpus

FAR, SHIFTED, PITCHED = "far", "8 bytes further", "8 bytes longer"
"""A view of which some rows are beyond 2^31 elements, at times each 2^31 from the last;
views whose first element, or else whose rows, lie at odd multiples of 8 bytes."""
OWN_VIEWS = (FAR, SHIFTED, PITCHED)
_FEW = 64
"""Rows that may be so far apart."""
INFERRED = "of inference mode"
OUTS = ("made", "given", INFERRED, "an input", "an operand", "a row further")
"""Where results go; all but the first three to memory that an input has."""


@dataclass(frozen=True)
class Facts:
    """A call without its tensors, which `views` lie in, by name if not contiguous.

    One tensor may be `odd`, of a dtype that it should not have, or `astray`, on another
    device than the rest; one may require a `gradient`, which are on or not, or be a
    `negative` view. The last `keywords` inputs are passed by name. Somebody may have
    `hooked` into how launches begin, "enter", or end, "exit".
    """

    rows: tuple[int, ...] = (64,)
    n: int = 64
    k: int = 4096
    views: Mapping[str, str] = field(default_factory=dict)
    numbers: tuple[Any, ...] = ()
    out: str = "made"
    odd: str | None = None
    astray: str | None = None
    gradient: tuple[str | None, bool] = (None, True)
    negative: str | None = None
    keywords: int = 0
    device: int = 0
    current: int = 0
    stream: int = 0
    captured: bool = False
    hooked: str | None = None

    def __str__(self) -> str:
        """What of it is not as usual."""
        parts = [f"M={self.rows} N={self.n} K={self.k}"]
        parts += [f"{name} {view}" for name, view in self.views.items()]
        parts += [str(value) for value in self.numbers]
        parts += [f"out {self.out}", f"cuda:{self.device}", f"stream {self.stream}"]
        parts += [f"current cuda:{self.current}"] * (self.current != self.device)
        parts += [f"{self.odd} of another dtype"] if self.odd else []
        parts += [f"{self.astray} on another device"] if self.astray else []
        name, on = self.gradient
        parts += [f"{name} requires a gradient, {on}"] if name or not on else []
        parts += [f"{self.negative} negated"] if self.negative else []
        parts += [f"{self.keywords} by name"] if self.keywords else []
        parts += [f"hooked at {self.hooked}"] if self.hooked else []
        return ", ".join(parts + ["captured"] * self.captured)


@dataclass
class Call:
    """A call with its tensors and numbers, by name."""

    inputs: dict[str, Any]
    outputs: list[torch.Tensor] | None

    def arguments(self, keywords: int) -> tuple[list[Any], dict[str, Any]]:
        """The positional ones, and those by name."""
        names = list(self.inputs)
        first, rest = names[: len(names) - keywords], names[len(names) - keywords :]
        given = {name: self.inputs[name] for name in rest}
        if self.outputs is not None:
            out = self.outputs
            given["out"] = out[0] if len(out) == 1 else tuple(out)
        return [self.inputs[name] for name in first], given

    @property
    def tensors(self) -> list[torch.Tensor]:
        """All of them."""
        found = [*self.inputs.values(), *(self.outputs or ())]
        return [one for one in found if isinstance(one, torch.Tensor)]


def call_of(plan: Plan, gpus: Gpus, facts: Facts) -> Call:
    """New tensors for a call."""
    rows = facts.rows if OPERATIONS[plan.op].leading else (math.prod(facts.rows),)
    case = Case(rows, facts.n, facts.k)
    shapes = input_shapes(plan, case)
    made: dict[str, Any] = {}
    for one in plan.inputs:
        name, dtype = one.name, torch_dtype(one.dtype)
        if name == facts.odd:
            dtype = torch.float64 if dtype != torch.float64 else torch.float32
        device = facts.device ^ (name == facts.astray)
        made[name] = _tensor(gpus, facts, name, shapes[name], dtype, device)
        if name == facts.gradient[0]:
            made[name].requires_grad_()
        if name == facts.negative:
            made[name] = torch._neg_view(made[name])
    outputs = None
    if facts.out != "made":
        outputs = _outputs(plan, gpus, facts, (*rows, facts.n), made)
    values = dict(zip(numbers(plan), facts.numbers, strict=True))
    given = made | values
    return Call({name: given[name] for name in plan.argument_names}, outputs)


def _tensor(
    gpus: Gpus, facts: Facts, name: str, shape: Any, dtype: Any, device: int
) -> torch.Tensor:
    view = facts.views.get(name, "contiguous")
    few = dtype.itemsize
    row = {
        FAR: VIEWS["contiguous"],
        SHIFTED: View(SHIFTED, offset=8 // few),
        PITCHED: View(PITCHED, pad=8 // few),
    }.get(view) or VIEWS[view]
    strides = row.strides(shape)
    if view == FAR and shape[0] > 1:
        apart = 2**31 // (shape[0] - 1 if shape[0] > _FEW else 1)
        strides = (-(-apart // 16) * 16, *strides[1:])
    last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if n > 0)
    whole = gpus.empty((last + 1 + row.offset,), (1,), dtype, device)
    return whole.as_strided(shape, strides, row.offset)


def _outputs(
    plan: Plan, gpus: Gpus, facts: Facts, shape: Any, inputs: dict[str, Any]
) -> list[torch.Tensor]:
    """Tensors for the results, the first of them where `facts.out` says."""
    with torch.inference_mode(facts.out == INFERRED):
        found = [
            _tensor(gpus, facts, one.name, shape, torch_dtype(one.dtype), facts.device)
            for one in plan.results
        ]
    name, first = _shared(plan, facts.out), found[0]
    if facts.out not in ("given", INFERRED) and _alike(inputs[name], first):
        count, skipped = first.numel(), facts.n * (facts.out == "a row further")
        whole = gpus.empty((count + skipped,), (1,), first.dtype, facts.device)
        inputs[name] = whole[:count].view(inputs[name].shape)
        found[0] = whole[skipped:].view(shape)
    return found


def _shared(plan: Plan, out: str) -> str:
    """The input whose memory a result may lie in."""
    matrices = [one.name for one in plan.operands if one.is_matrix]
    return matrices[0] if matrices and out != "an input" else plan.contraction.lhs.name


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    kinds = one.dtype == other.dtype and one.numel() == other.numel()
    return bool(kinds and one.device == other.device and one.is_contiguous())
