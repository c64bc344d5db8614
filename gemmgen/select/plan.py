"""Spec → `Plan`: the rules between fields, and every fact that a kernel derives.

A `Plan` is plain data and the only input of templates and of checks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from gemmgen.base.errors import Mistakes, SpecError, SpecErrors, quoted
from gemmgen.epilogue.checked import Epilogue, Statement
from gemmgen.epilogue.expression import Name
from gemmgen.epilogue.gradient import without_derivative
from gemmgen.epilogue.parser import compile_epilogue
from gemmgen.hardware.targets import TARGETS, Target
from gemmgen.problem.backward import Backward, backward_of
from gemmgen.problem.bindings import operands_of, results_of, scaled, scales_of
from gemmgen.problem.contraction import Contraction, contraction_of
from gemmgen.problem.derived import Derived, derived_of
from gemmgen.problem.problem import Problem
from gemmgen.problem.tensors import Operand, Result
from gemmgen.problem.workload import product_of
from gemmgen.schedules import SCHEDULES, by_file
from gemmgen.schedules.parts.tile import FALLBACK, Product, Tile
from gemmgen.select.arithmetic import out_and_accumulator, precision_of
from gemmgen.select.listed_tiles import schedule_text, tiles_text
from gemmgen.select.table import BY_ARCHITECTURE, Row, Table, joined
from gemmgen.select.tiling import choose
from gemmgen.select.tuned.costs import Costs, costed_as
from gemmgen.select.tuned.known import Known
from gemmgen.select.tuned.tuning_file import Tuning, tunings_for
from gemmgen.spec.parse import KernelSpec, Spec, read
from gemmgen.tables.operations import OPERATIONS
from gemmgen.tables.scalings import SCALINGS
from gemmgen.yaml.reader import file_bytes

SWITCHES = ("grad", "grad_accumulate", "module")
"""The keys of an entry that are true or left out, which a `Plan` has too."""


@dataclass(frozen=True)
class Plan(Problem):
    """One kernel, decided: nothing about it is left to a template.

    `tables` are what the dispatch table's `rows` come from; with runtime autotuning
    `configs` takes their place. `schedule` is what the spec says. A kernel that is a
    `part` of another one's backward lies in the folder of that, its `parent`.
    """

    schedule: str
    targets: tuple[str, ...]
    tables: tuple[Table, ...]
    configs: tuple[Tile, ...]
    tiles_text: str
    chosen_by: str
    default_result: str = ""
    grad: bool = False
    grad_accumulate: bool = False
    module: bool = False
    parent: str = ""
    part: str = ""

    @property
    def folder(self) -> str:
        """Where its files lie in the output folder."""
        return f"{self.parent}/{self.part}" if self.parent else self.name

    @cached_property
    def backward(self) -> Backward | None:
        """How its gradients are computed, if the spec asks for them."""
        return backward_of(self, self.grad_accumulate) if self.grad else None

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The dispatch table; chosen when first asked for, since that takes a while."""
        return joined(self.tables, self.product)

    @cached_property
    def schedules(self) -> tuple[str, ...]:
        """The schedules that some row uses, the fallback first."""
        used = {row.tile.schedule for row in self.rows} | {FALLBACK}
        return tuple(name for name in SCHEDULES if name in used)

    @property
    def files(self) -> dict[str, list[str]]:
        """The schedules by the files that their kernels are in."""
        return by_file(self.schedules)

    @property
    def specialized(self) -> str | None:
        """The schedule of warps that have different parts, if some row uses one."""
        found = (name for name in self.schedules if SCHEDULES[name].specialized)
        return next(found, None)

    def target(self, name: str) -> Target:
        """A target, with the rates that its tuning file has."""
        return next(table.gpu for table in self.tables if table.target == name)

    @cached_property
    def tiles(self) -> tuple[tuple[Target, Tile], ...]:
        """Every (target, tile) that the module can launch, each once."""
        rows = (row for table in self.tables for row in table.rows(self.product))
        pairs = [
            (row.architecture, tile) for row in rows for tile in row.tiles(self.product)
        ]
        pairs += [
            (TARGETS[target].architecture, tile)
            for target in self.targets
            for tile in self.configs
        ]
        return tuple((BY_ARCHITECTURE[sm], tile) for sm, tile in dict.fromkeys(pairs))


def load(path: Path, source: str | None = None) -> tuple[Plan, ...]:
    """The plans of a spec file, in its order; `source` is the name errors show.

    Raises `SpecErrors` with every mistake of the file and of the tuning files beside
    it, and `OSError`.
    """
    tunings, wrong = tunings_for(path)
    mistakes = Mistakes()
    try:
        spec = read(file_bytes(path), source or str(path), mistakes)
    except SpecErrors as found:
        raise SpecErrors([*found.errors, *wrong]) from None
    mistakes.include(wrong)
    return plans(spec, tunings, mistakes)


def plans(
    spec: Spec, tunings: Sequence[Tuning] = (), mistakes: Mistakes | None = None
) -> tuple[Plan, ...]:
    """Plan every kernel; raise `SpecErrors` with all that is wrong in any of them.

    `mistakes` are those that were found before.
    """
    mistakes = mistakes or Mistakes()
    named = {one.name: one for one in spec.kernels}
    planned: list[Plan] = []
    for kernel in spec.kernels:
        try:
            whole = _Planner(kernel, spec.targets, tunings).plan()
            planned.append(whole)
            for one in derived_of(kernel, whole.backward) if whole.backward else ():
                own = _Planner(one.spec, spec.targets, tunings, one).plan()
                planned.append(replace(own, parent=whole.name, part=one.part))
                if other := named.get(own.name):
                    message = f"name {quoted(own.name)} is that of the kernel "
                    message += f"{one.part} of {quoted(whole.name)}'s backward"
                    mistakes.add(other.at("name"), message)
        except SpecErrors as found:
            mistakes.include(found.errors)
    mistakes.stop_if_any()
    return tuple(planned)


_OF_BINDINGS = {"op", "dtype", "epilogue", "operands", "outputs"}
_OF_TILES = {*("op", "dtype", "layout", "precision", "tiles", "schedule", "autotune")}
"""The keys that operands and results, or tiles, depend on."""


class _Planner:
    """Decides one kernel, collecting the mistakes of each independent part."""

    def __init__(
        self,
        spec: KernelSpec,
        targets: Sequence[str],
        tunings: Sequence[Tuning],
        derived: Derived | None = None,
    ) -> None:
        self.spec = spec
        self.derived = derived
        self.operation = derived.operation if derived else OPERATIONS[spec.op]
        self.known = Known(spec.name, targets, tunings, free=not spec.tiles)
        self.targets = list(map(self.known.target, targets))
        self.errors: list[SpecError] = []
        self.refused = set(spec.refused)

    def fail(self, *path: str | int, message: str) -> None:
        self.refused.add(str(path[0]))
        self.errors.append(SpecError(self.spec.at(*path), message))

    def plan(self) -> Plan:
        spec, operation = self.spec, self.operation
        contraction = contraction_of(operation, spec.layout)
        known = self.refused, self.fail
        out, accumulator = out_and_accumulator(spec, self.targets, *known)
        precision = precision_of(spec, *known)
        epilogue = self.epilogue(contraction, operation.result)
        operands, results = self.bound(epilogue, accumulator, out)
        product = product_of(spec, precision, contraction, epilogue, operands, results)
        kind = costed_as(product)
        tables, configs = self.tiles(product, epilogue, self.known.costs(kind))
        if self.errors or self.refused:
            raise SpecErrors(self.errors)
        return Plan(
            name=spec.name,
            op=spec.op,
            layout=spec.layout,
            contraction=contraction,
            dtype=spec.dtype.a,
            accumulator=accumulator,
            out=out,
            precision=precision,
            product=product,
            epilogue=epilogue,
            operands=operands,
            results=results,
            schedule=schedule_text(spec),
            targets=tuple(target.name for target in self.targets),
            tables=tables,
            configs=configs,
            tiles_text=tiles_text(spec),
            chosen_by=self.known.chosen_by(kind),
            grad=spec.grad,
            grad_accumulate=spec.grad_accumulate,
            module=spec.module,
            default_result=operation.result,
        )

    def tiles(
        self, product: Product, epilogue: Epilogue, costs: Mapping[str, Costs]
    ) -> tuple[tuple[Table, ...], tuple[Tile, ...]]:
        """The tiles, unless something that they depend on was refused."""
        if self.refused & _OF_TILES:
            return (), ()
        try:
            return choose(
                self.spec, self.targets, product, epilogue, self.known.measured, costs
            )
        except SpecErrors as found:
            self.errors += found.errors
            return (), ()

    def bound(
        self, epilogue: Epilogue, accumulator: str, out: str
    ) -> tuple[tuple[Operand, ...], tuple[Result, ...]]:
        """The operands and results; those of a bare product if any are refused."""
        if not self.refused & _OF_BINDINGS:
            operands = operands_of(self.spec, epilogue, accumulator, out, self.fail)
            results = results_of(self.spec, epilogue, accumulator, out, self.fail)
        if self.refused & _OF_BINDINGS:
            first = epilogue.statements[0].target
            return (), (Result(first, epilogue.accumulators[0], out, accumulator),)
        return operands, results

    def check_gradient(self, epilogue: Epilogue) -> None:
        """Refuse `grad` where a function has no derivative."""
        for name in without_derivative(epilogue.statements if self.spec.grad else ()):
            message = f"{name}(…) has no derivative: leave out grad, or the function"
            self.fail("grad", message=message)

    def ordered(self, epilogue: Epilogue) -> Epilogue:
        """With operands in the order that a derived kernel is called with."""
        if self.derived is None:
            return epilogue
        order = self.derived.operands.index
        own = sorted(epilogue.operands, key=lambda one: order(one.name))
        return replace(epilogue, operands=tuple(own))

    def epilogue(self, contraction: Contraction, result: str) -> Epilogue:
        """The epilogue, none of whose names is one of the inputs or the kernels.

        A bare sum if it is refused, or the operation, whose names it uses.
        """
        spec, sums = self.spec, contraction.accumulators
        scaling = SCALINGS[spec.scaling]
        taken = [one.name for one in contraction.inputs]
        taken += scales_of(scaling, contraction)
        kernels = [spec.name + row.kernel_suffix for row in SCHEDULES.values()]
        if not self.refused & {"op", "epilogue"}:
            try:
                found = compile_epilogue(
                    spec.epilogue, sums, result, (*taken, *kernels),
                    spec.inside_epilogue,
                )  # fmt: skip
                self.check_gradient(found)
                return self.ordered(scaled(found, scaling, contraction))
            except SpecErrors as wrong:
                self.refused.add("epilogue")
                self.errors += wrong.errors
        return Epilogue((Statement(result, Name(sums[0]), ("m", "n")),), (), sums)
