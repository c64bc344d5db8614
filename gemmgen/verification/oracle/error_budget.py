"""The error argument of a kernel, for people: what `gemmgen explain --error` prints.

Every number comes from the tables that the oracle computes with. Needs no torch.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from gemmgen.base.text_table import table
from gemmgen.epilogue.checked import AXES
from gemmgen.epilogue.expression import Binary, Call, Name, Node, children, spell
from gemmgen.select.plan import Plan
from gemmgen.tables.dtypes import DTYPES
from gemmgen.tables.error_rules import NONE, power_text
from gemmgen.tables.functions import OPS
from gemmgen.verification.oracle import constants


@dataclass(frozen=True)
class Step:
    """One operation: how far errors of its arguments move it, and its own error."""

    operation: str
    moved: str
    rounding: str


@dataclass(frozen=True)
class Stage:
    """One statement of the epilogue, and its operations in order of evaluation."""

    statement: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Size:
    """How large the bound is for normal data, over one draw of up to 64 x 64.

    `unbounded` is the share of elements for which there is no bound.
    """

    result: str
    mean_value: float
    mean_error: float | None
    most_error: float | None
    mean_rounding: float
    unbounded: float


@dataclass(frozen=True)
class Explanation:
    """The whole argument, section by section."""

    kernel: str
    product: tuple[str, ...]
    legend: tuple[str, ...]
    epilogue: tuple[Stage, ...]
    results: tuple[str, ...]
    exact: tuple[str, ...]
    shape: str = ""
    sizes: tuple[Size, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The argument as plain data."""
        return asdict(self)

    def as_text(self) -> str:
        """The argument for reading."""
        parts = [f"{self.kernel}: how far results may be from float64"]
        parts.append(_section("product", self.product))
        parts.append(_section("epilogue", [*self.legend, *self._stages()]))
        parts.append(_section("results", self.results))
        parts.append(_section("compared bit for bit", self.exact))
        if self.sizes:
            parts.append(_section(f"sizes, {self.shape}", _sizes(self.sizes)))
        return "\n\n".join(parts)

    def _stages(self) -> Iterator[str]:
        for stage in self.epilogue:
            yield stage.statement
            rows = [
                {"operation": step.operation, "error from its arguments": step.moved,
                 "its own, in u": step.rounding}
                for step in stage.steps
            ]  # fmt: skip
            yield from (f"  {line}" for line in table(rows).splitlines())

    def sized(self, shape: str, sizes: tuple[Size, ...]) -> "Explanation":
        """The same with the size of the bound for a shape."""
        return replace(self, shape=shape, sizes=sizes)


def _section(title: str, lines: Any) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _sizes(sizes: tuple[Size, ...]) -> list[str]:
    rows = [
        {
            "result": size.result,
            "mean |value|": f"{size.mean_value:.3g}",
            "mean E": _number(size.mean_error),
            "largest E": _number(size.most_error),
            "mean rounding": f"{size.mean_rounding:.3g}",
            "without bound": f"{size.unbounded:.1%}",
        }
        for size in sizes
    ]
    return table(rows).splitlines()


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g}"


def explain(plan: Plan) -> Explanation:
    """The error argument of one kernel."""
    stages = [] if plan.epilogue.is_empty else plan.epilogue.statements
    legend: tuple[str, ...] = (
        f"in {plan.accumulator}, u = {_unit(plan.accumulator)}; e is the error of an "
        "argument, f the largest result",
        "that the errors allow; every rounding may also lose one underflow",
    )
    if not stages:
        legend = ("none: the product is the result",)
    return Explanation(
        plan.name,
        tuple(_product(plan)),
        legend,
        tuple(_stage(plan, stage.target, stage.value) for stage in stages),
        tuple(_results(plan)),
        tuple(_exact(plan)),
    )


def _unit(dtype: str) -> str:
    return power_text(DTYPES[dtype].roundoff)


def _product(plan: Plan) -> Iterator[str]:
    unit = constants.accumulator_unit(plan.accumulator)
    cut = constants.cut_of(plan)
    precision = f", {plan.precision}" if plan.precision else ""
    yield (
        f"{plan.dtype}{precision}; accumulator {plan.accumulator}, "
        f"u_acc = {power_text(unit)}: a unit of its last"
    )
    yield "place, for matrix units cut where IEEE rounds"
    step = f"{constants.STEP_UNITS:g} (c/{constants.UNIT_COLUMNS}) u_acc (T + P)"
    yield (
        f"E_acc = {step}" + " + c_in T" * (cut > 0) + f", c = {constants.COLUMNS}: "
        f"{constants.STEP_ERROR:g} units of T + P"
    )
    if cut:
        yield f"c_in = {cut:.4g}: what cutting operands loses ({plan.precision})"
    else:
        yield "c_in = 0: products of the operands lose nothing beside these units"
    yield "T = sum over k of |a[m, k] b[k, n]|, in float64"
    yield f"P = sum of |prefix sums of a b|, one every {constants.COLUMNS} columns of K"
    yield "and K + 1 underflows of the accumulator"


def _stage(plan: Plan, target: str, value: Node) -> Stage:
    indexes = {
        operand.name: AXES[operand.axes].text for operand in plan.epilogue.operands
    }
    text = spell(value, lambda name: name + indexes.get(name, ""))
    steps = dict.fromkeys(_steps(plan, value))
    return Stage(f"{target} = {text}", tuple(steps))


def _steps(plan: Plan, node: Node) -> Iterator[Step]:
    """The operations of an expression, inner ones first."""
    for part in _parts(node):
        yield from _steps(plan, part)
    match node:
        case Binary(op):
            yield _operator(plan, op, f"x {op} y")
        case Call("where"):
            yield _operator(plan, "where", "where")
        case Call(function):
            row = OPS[function]
            form = f"{row.name}({', '.join(row.parameters)})"
            yield Step(form, row.moved.text, row.rounding.text)


def _parts(node: Node) -> tuple[Node, ...]:
    """The parts that are computed; of a comparison, its sides."""
    match node:
        case Call("where", (condition, *branches)):
            return (*children(condition), *branches)
    return children(node)


def _operator(plan: Plan, op: str, form: str) -> Step:
    units = constants.operator_units(op, plan.accumulator)
    own = "|f|" if units == 1 else f"{units:g} |f|"
    return Step(form, constants.MOVED[op], own if units else "0")


def _results(plan: Plan) -> Iterator[str]:
    for result in plan.results:
        then = "" if result.dtype == result.arithmetic else f", then to {result.dtype}"
        yield (
            f"{result.name}: value - E and value + E are rounded to {result.arithmetic}"
            f"{then} (u = {_unit(result.dtype)});"
        )
        yield "  what the kernel returns must lie between; no tolerance is added"
    yield "NaN only where the value is NaN; an infinity only where rounding gives one"


def _exact(plan: Plan) -> Iterator[str]:
    total = power_text(constants.exact_sum(plan))
    widest = power_text(constants.wide_limit(plan, 1))
    yield f"sums of whole numbers are exact in any order where T <= {total}: E_acc = 0"
    yield (
        "narrow: A and B of -1, 0 and 1, one in "
        f"max(1, K / {constants.narrow_products(plan):.4g}) not 0:"
    )
    yield "  the result fits its type, and any lost product shows"
    yield f"wide: whole numbers up to min(sqrt({total} / K), {widest}):"
    yield "  any lost bit of the accumulator shows"
    yield (
        f"operands in both: whole numbers from -{constants.OPERAND_LIMIT} to "
        f"{constants.OPERAND_LIMIT}, without 0"
    )
    yield "special: small whole numbers with NaN and infinities, by position"
    if not plan.epilogue.is_empty:
        yield (
            "an epilogue is exact where each operation is one rounding and its result "
            f"fits {plan.accumulator}:"
        )
    for result in plan.results:
        inexact = list(dict.fromkeys(_inexact(plan, result.name)))
        left = (
            f"exact but for what {', '.join(inexact)} may lose" if inexact else "exact"
        )
        yield f"{result.name}: {left}"


def _inexact(plan: Plan, name: str) -> Iterator[str]:
    """The operations on the way to a value that are not one IEEE rounding."""
    values = {
        statement.target: statement.value for statement in plan.epilogue.statements
    }

    def visit(node: Node) -> Iterator[str]:
        for part in children(node):
            yield from visit(part)
        match node:
            case Name(name) if name in values:
                yield from visit(values[name])
            case Binary("/"):
                yield "/"
            case Call(function) if function in OPS:
                row = OPS[function]
                if not row.rounds_once and row.rounding is not NONE:
                    yield function

    yield from visit(values[name])
