"""Spec → `Plan`: the rules between fields, and every fact that a kernel derives.

A `Plan` is plain data and the only input of templates and of checks.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from gemmgen import header
from gemmgen.arguments import Operand, Result
from gemmgen.dispatch import BY_ARCHITECTURE, Row, Table
from gemmgen.dtypes import DTYPES, PRECISIONS
from gemmgen.epilogue import Epilogue
from gemmgen.epilogue_parser import compile_epilogue
from gemmgen.errors import SpecError, SpecErrors, not_built, one_of, quoted, unknown
from gemmgen.layouts import LAYOUTS, Matrix
from gemmgen.model import Product, Tile
from gemmgen.operations import OPERATIONS
from gemmgen.product import product_of
from gemmgen.schedules import FALLBACK, SCHEDULES
from gemmgen.spec import KernelSpec, Spec, parse
from gemmgen.targets import TARGETS, Target
from gemmgen.tiling import choose, schedule_text, tiles_text
from gemmgen.tuning_file import Tuning, beside
from gemmgen.tuning_file import read as read_tuning


@dataclass(frozen=True)
class Plan:
    """One kernel, decided: nothing about it is left to a template.

    `tables` are what the dispatch table's `rows` come from; with runtime autotuning
    `configs` takes their place. `schedule` is what the spec says.
    """

    name: str
    op: str
    layout: str
    a: Matrix
    b: Matrix
    dtype: str
    accumulator: str
    out: str
    precision: str | None
    product: Product
    epilogue: Epilogue
    operands: tuple[Operand, ...]
    results: tuple[Result, ...]
    schedule: str
    targets: tuple[str, ...]
    tables: tuple[Table, ...]
    configs: tuple[Tile, ...]
    tiles_text: str
    chosen_by: str

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The dispatch table; chosen when first asked for, since that takes a while."""
        return tuple(row for table in self.tables for row in table.rows(self.product))

    @cached_property
    def schedules(self) -> tuple[str, ...]:
        """The schedules that some row uses, the fallback first."""
        used = {row.tile.schedule for row in self.rows} | {FALLBACK}
        return tuple(name for name in SCHEDULES if name in used)

    def target(self, name: str) -> Target:
        """A target, with the rates that its tuning file has."""
        return next(table.gpu for table in self.tables if table.target == name)

    @property
    def tensors(self) -> tuple[Operand, ...]:
        """The operands that are tensors."""
        return tuple(one for one in self.operands if not one.is_number)

    @property
    def tiles(self) -> tuple[tuple[Target, Tile], ...]:
        """Every (target, tile) that the module can launch, each once."""
        pairs = [(row.architecture, row.tile) for row in self.rows]
        pairs += [
            (TARGETS[target].architecture, tile)
            for target in self.targets
            for tile in self.configs
        ]
        return tuple((BY_ARCHITECTURE[sm], tile) for sm, tile in dict.fromkeys(pairs))


def load(path: Path, source: str | None = None) -> tuple[Plan, ...]:
    """The plans of a spec file, in its order; `source` is the name errors show.

    Raises `SpecErrors` with every mistake of the file, and `OSError`.
    """
    spec = parse(path.read_bytes(), source or str(path))
    return plans(spec, [read_tuning(one) for one in beside(path)])


def plans(spec: Spec, tunings: Sequence[Tuning] = ()) -> tuple[Plan, ...]:
    """Plan every kernel; raise `SpecErrors` with all that is wrong in any of them."""
    planned: list[Plan] = []
    errors: list[SpecError] = []
    for kernel in spec.kernels:
        try:
            planned.append(_Planner(kernel, spec.targets, tunings).plan())
        except SpecErrors as found:
            errors.extend(found.errors)
    if errors:
        raise SpecErrors(errors)
    return tuple(planned)


def fingerprint(plan: Plan) -> str:
    """The hash of all that a plan holds: what a generated file is made from."""
    return header.entry_hash(asdict(plan))


class _Planner:
    """Decides one kernel, collecting the mistakes of each independent part."""

    def __init__(
        self, spec: KernelSpec, targets: Sequence[str], tunings: Sequence[Tuning]
    ) -> None:
        self.spec = spec
        mine = {
            one.target: one for one in tunings
            if one.target in targets
            and spec.name in one.kernels and one.kernels[spec.name].rules
        }  # fmt: skip
        self.tuned = {name: one.kernels[spec.name] for name, one in mine.items()}
        self.gpus = {name: one.gpu for name, one in mine.items()}
        rates = {one.target: one.rates for one in tunings if one.rates}
        self.targets = [
            replace(TARGETS[name], rates=rates.get(name, TARGETS[name].rates))
            for name in targets
        ]
        self.errors: list[SpecError] = []

    def fail(self, *path: str | int, message: str) -> None:
        self.errors.append(SpecError(self.spec.at(*path), message))

    def plan(self) -> Plan:
        spec, operation = self.spec, OPERATIONS[self.spec.op]
        layout = LAYOUTS[spec.layout]
        a = Matrix(operation.a, ("m", "k"), layout.a_transposed)
        b = Matrix(operation.b, ("k", "n"), layout.b_transposed)
        out, accumulator = self.dtypes()
        precision = self.precision()
        epilogue = self.epilogue((a.name, b.name), operation.result)
        operands = self.operands(epilogue, accumulator, out) if epilogue else ()
        results = self.results(epilogue, accumulator, out) if epilogue else ()
        if self.errors:
            raise SpecErrors(self.errors)
        assert epilogue is not None
        product = product_of(spec, precision, epilogue, operands, results)
        tables, configs = choose(spec, self.targets, product, epilogue, self.tuned)
        return Plan(
            name=spec.name,
            op=spec.op,
            layout=spec.layout,
            a=a,
            b=b,
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
            chosen_by=self.chosen_by(),
        )

    def chosen_by(self) -> str:
        """Who made the table: the model, or measurements where there are any."""
        if self.spec.tiles or not self.gpus:
            return "The model chose them"
        found = [f"Timed on {gpu} for {name}" for name, gpu in self.gpus.items()]
        return ", ".join([*found, "else chosen by the model"])

    def dtypes(self) -> tuple[str, str]:
        """The out dtype and the accumulator, checked against the inputs."""
        names = self.spec.dtype
        row = DTYPES[names.a]
        if names.b != names.a:
            self.fail(
                "dtype", "b",
                message=f"a is {names.a} and b is {names.b}: both must be the same",
            )  # fmt: skip
        if names.acc not in (None, row.accumulator):
            self.fail(
                "dtype", "acc",
                message=f"{names.a} accumulates in {row.accumulator}, not {names.acc}",
            )  # fmt: skip
        if names.out not in row.outputs:
            self.fail(
                "dtype", "out",
                message=f"out {quoted(names.out)} is not possible for {names.a} inputs "
                + one_of(row.outputs),
            )  # fmt: skip
        return names.out, row.accumulator

    def precision(self) -> str | None:
        if self.spec.dtype.a == "fp32":
            return self.spec.precision or next(iter(PRECISIONS))
        if self.spec.precision is not None:
            self.fail(
                "precision",
                message=f"precision chooses how fp32 is multiplied; dtype is "
                f"{self.spec.dtype.a}",
            )
        return None

    def epilogue(self, taken: tuple[str, ...], result: str) -> Epilogue | None:
        try:
            return compile_epilogue(
                self.spec.epilogue, result, taken, self.spec.inside_epilogue
            )
        except SpecError as error:
            self.errors.append(error)
            return None

    def operands(
        self, epilogue: Epilogue, arithmetic: str, out: str
    ) -> tuple[Operand, ...]:
        """Operands with their dtypes: the out dtype unless the spec names another."""
        named = self.spec.operands
        known = {operand.name: operand for operand in epilogue.operands}
        for name, dtype in named.items():
            if name not in known:
                self.fail(
                    "operands", name,
                    message=unknown("operand", name, known)
                    if known else f"the epilogue has no operand {quoted(name)}",
                )  # fmt: skip
            elif not known[name].axes:
                self.fail(
                    "operands", name,
                    message=f"{name}[] is a Python float and has no dtype",
                )  # fmt: skip
            elif not DTYPES[dtype].built:
                self.fail("operands", name, message=not_built(f"operand dtype {dtype}"))
        return tuple(
            Operand(
                one.name,
                one.axes,
                named.get(one.name, out) if one.axes else arithmetic,
                arithmetic,
            )
            for one in epilogue.operands
        )

    def results(
        self, epilogue: Epilogue, arithmetic: str, out: str
    ) -> tuple[Result, ...]:
        """What is returned: the last statement, or what `outputs` names."""
        targets = [statement.target for statement in epilogue.statements]
        chosen = self.spec.outputs or ((targets[-1], None),)
        results = []
        for position, (name, dtype) in enumerate(chosen):
            key = name if dtype is not None else position
            if name not in targets:
                self.fail("outputs", key, message=unknown("output", name, targets))
                continue
            if dtype and dtype not in DTYPES[self.spec.dtype.a].outputs:
                self.fail(
                    "outputs", key,
                    message=f"output {quoted(name)} cannot be {dtype} "
                    + one_of(DTYPES[self.spec.dtype.a].outputs),
                )  # fmt: skip
            value = "acc" if epilogue.is_identity(name) else name
            results.append(Result(name, value, dtype or out, arithmetic))
        if len(results) == len(chosen):
            self.check_used(epilogue, [name for name, _ in chosen])
        return tuple(results)

    def check_used(self, epilogue: Epilogue, returned: Sequence[str]) -> None:
        """Every statement is returned or used; what is returned spans the matrix."""
        for statement in epilogue.statements:
            if (
                statement.target not in returned
                and statement.target not in epilogue.used
            ):
                self.fail(
                    "epilogue",
                    message=f"{quoted(statement.target)} is neither used nor returned",
                )
            if statement.target in returned and not statement.whole:
                self.fail(
                    "epilogue",
                    message=f"output {quoted(statement.target)} does not vary along "
                    "both m and n, so it is no matrix [M, N]",
                )
