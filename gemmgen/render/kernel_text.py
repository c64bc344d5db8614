"""The text of a kernel: signature, loads, product, epilogue, stores.

Every choice between two spellings is made here, so that a template has none.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gemmgen.base.names import grouped
from gemmgen.problem.tensors import Result
from gemmgen.render.epilogue_text import EpilogueText
from gemmgen.render.table_text import config
from gemmgen.schedules import described
from gemmgen.schedules.parts.schedule import Schedule
from gemmgen.select.plan import Plan
from gemmgen.tables.dtypes import DTYPES, UNANNOTATED
from gemmgen.tables.layouts import Matrix


@dataclass(frozen=True)
class KernelText:
    """The fragments of one kernel in one schedule, in the order in which it reads."""

    plan: Plan
    schedule: Schedule

    @property
    def name(self) -> str:
        """The kernel's own name."""
        return self.plan.name + self.schedule.kernel_suffix

    @property
    def splits(self) -> bool:
        """Whether K may come in splits, in one of the tiles that the kernel has.

        These meet in one sum, so that there is no other. What specialized kernels share
        is for splits.
        """
        alone = len(self.plan.contraction.accumulators) == 1
        served = self.plan.files[self.schedule.file]
        own = (tile for _, tile in self.plan.tiles if tile.schedule in served)
        splits = self.schedule.specialized or any(tile.split_k != 1 for tile in own)
        return alone and splits

    @property
    def decorator(self) -> str:
        """`@triton.jit`, told which sizes need no kernel of their own; autotuning.

        M is only compared with unless pointers run along it.
        """
        jit = "@gluon.jit" if self.schedule.in_gluon else "@triton.jit"
        if self.plan.contraction.lhs.contiguous_axis != "m" or self.described("inputs"):
            jit += '(do_not_specialize=["M"])'
        if not self.plan.configs:
            return jit
        configs = ", ".join(config(tile) for tile in self.plan.configs)
        return f'@triton.autotune([{configs}], key=["M", "N", "K"])\n{jit}'

    def described(self, role: str) -> bool:
        """Whether the tensors of a role come as descriptors."""
        return role in described(self.schedule.name, self.plan.product.kind)

    @property
    def signature(self) -> str:
        """The kernel's parameters: tensors and numbers, sizes, strides, constants."""
        plan, splits = self.plan, self.splits
        inputs, results = self.described("inputs"), self.described("results")
        tensors = [
            *self._passed(plan.contraction.inputs, inputs),
            *self.operand_parameters,
            *self._passed(plan.results, results),
            *(("partials_ptr", "counters_ptr") if splits else ()),
        ]
        sizes = ["M, N, K" + ", SPLIT_K" * splits]
        types = [
            *(("INDEX: tl.constexpr",) if self.indexes else ()),
            *(("ALIGN: tl.constexpr",) if self.aligns else ()),
        ]
        strides = [", ".join(pair) for pair in self.stride_pairs]
        constants = [f"{one}: tl.constexpr" for one in self.schedule.constants]
        return grouped([tensors, sizes + strides, types + constants])

    def _passed(self, tensors: Iterable[Matrix | Result], described: bool) -> list[str]:
        """The parameters of A and B, or of results."""
        return [
            parameter
            for one in tensors
            for parameter in (
                self.descriptors(one.name) if described else [f"{one.name}_ptr"]
            )
        ]

    def descriptors(self, name: str) -> list[str]:
        """The parameters by which a tensor comes that has descriptors."""
        return [f"{name}_desc"]

    @property
    def operand_parameters(self) -> list[str]:
        """The parameters of the epilogue's operands."""
        described = self.described("operands")
        return [
            parameter
            for one in self.plan.operands
            for parameter in (
                self.descriptors(one.name)
                if one.is_matrix and described
                else [one.parameter]
            )
        ]

    @property
    def strides(self) -> list[str]:
        """The strides of what comes as pointers."""
        return [name for pair in self.stride_pairs for name in pair]

    @property
    def stride_pairs(self) -> list[tuple[str, ...]]:
        """The same by tensor: one of a vector, two of a matrix."""
        plan, found = self.plan, list[tuple[str, ...]]()
        if not self.described("inputs"):
            found += [one.strides for one in plan.contraction.inputs]
        for one in plan.operands:
            if not (one.is_matrix and self.described("operands")):
                found.append(one.strides)
        if not self.described("results"):
            found += [result.matrix.strides for result in plan.results]
        return [strides for strides in found if strides]

    @property
    def indexes(self) -> bool:
        """Whether offsets within a tensor are computed, which may need 64 bits.

        Vectors beside descriptors alone have 64 bits always, and so have all that
        specialized consumers store.
        """
        if self.schedule.specialized:
            return False
        pointers = not self.described("operands") and bool(self.plan.tensors)
        return pointers or not self.described("results")

    @property
    def aligns(self) -> bool:
        """Whether loads of A and B are as wide as their rows' alignment allows."""
        return not self.described("inputs")

    @property
    def alignment(self) -> list[str]:
        """What tells the compiler that rows of A and B are aligned."""
        told, lines = set[str](), list[str]()
        for one in self.plan.contraction.inputs:
            length, stride = one.stored_sizes[1], one.row_stride
            name = "_" if length in told else length
            told.add(length)
            given = [length, stride, "ALIGN", *self._loaded(one.contiguous_axis)]
            lines.append(f"{name}, {stride} = aligned({', '.join(given)})")
        return lines

    def _loaded(self, axis: str) -> list[str]:
        """How much of a row along an axis is loaded at a time, where it may be 1."""
        lone = self.schedule.memory_bound and axis != "k"
        return [f"BLOCK_{axis.upper()}"] * lone

    @property
    def end_of_k(self) -> str:
        """Where the loop over K, or over a split of it, ends."""
        return "k_end - k_begin" if self.splits else "K"

    @property
    def range_of_k(self) -> str:
        """From where to where it goes, where offsets are of the whole matrix."""
        return "k_begin, k_end" if self.splits else "0, K"

    @property
    def accumulator(self) -> str:
        """The accumulator's Triton type."""
        return f"tl.{DTYPES[self.plan.accumulator].triton}"

    @property
    def dots(self) -> list[str]:
        """The products of one K block, of matrices loaded as they are multiplied."""
        lhs, products = self.plan.contraction.lhs, self.plan.contraction.products
        return [self._dot(sum_, lhs.name, one.name) for sum_, one in products.items()]

    @property
    def described_dots(self) -> list[str]:
        """`dots` of blocks that descriptors load as they are stored."""
        lhs = self.plan.contraction.lhs.block(rows="m")
        return [
            self._dot(sum_, lhs, one.block(rows="k"))
            for sum_, one in self.plan.contraction.products.items()
        ]

    @property
    def described_transposed_dots(self) -> list[str]:
        """The same, transposed: columns of the right sides are rows of the products."""
        lhs = self.plan.contraction.lhs.block(rows="k")
        return [
            self._dot(sum_, one.block(rows="n"), lhs)
            for sum_, one in self.plan.contraction.products.items()
        ]

    def _dot(self, sum_: str, left: str, right: str) -> str:
        arguments = [left, right, sum_]
        if self.plan.precision:
            arguments.append(f'input_precision="{self.plan.precision}"')
        if self.plan.accumulator != UNANNOTATED:
            arguments.append(f"out_dtype={self.accumulator}")
        return f"{sum_} = tl.dot({', '.join(arguments)})"

    @property
    def row_dots(self) -> dict[str, str]:
        """By each sum, what `row_dot` takes: rows of A, rows of a right side."""
        contraction = self.plan.contraction
        return {
            sum_: grouped(
                [
                    self._rows(contraction.lhs, "m"),
                    self._rows(right, "n"),
                    [self.range_of_k, "INDEX", "BLOCK_K", self.accumulator],
                ],
                indent=4,
            )
            for sum_, right in contraction.products.items()
        }

    def _rows(self, matrix: Matrix, axis: str) -> list[str]:
        """A matrix as rows along K: where they begin, their stride, which exist."""
        return [
            f"{matrix.name}_ptr",
            f"offs_{axis} * {matrix.stride(axis)}",
            matrix.stride("k"),
            f"mask_{axis}",
        ]

    @property
    def blocks(self) -> list[str]:
        """The loads of a K block of every matrix through its descriptor."""
        corner = {"m": "tile_m * BLOCK_M", "n": "tile_n * BLOCK_N", "k": "k"}
        return [
            f"{one.name} = {one.name}_desc.load({one.corner(**corner)})"
            for one in self.plan.contraction.inputs
        ]

    @property
    def offsets_of_pointers(self) -> list[str]:
        """Offsets and masks along the axes that some pointer is indexed by."""
        used = {axis for one in self.plan.tensors for axis in one.axes}
        return [
            f"offs_{axis}, mask_{axis} = "
            f"span(tile_{axis}, BLOCK_{axis.upper()}, {axis.upper()}, INDEX)"
            for axis in sorted(used)
        ]

    @property
    def loads_of_operands(self) -> list[str]:
        """The loads of the epilogue's operands."""
        return [line for tensor in self.plan.tensors for line in tensor.loads]

    @property
    def epilogue(self) -> list[str]:
        """From the accumulator to the results; nothing if they are the same."""
        if not self.plan.epilogue.is_empty:
            return [*self.loads_of_operands, EpilogueText(self.plan).call]
        rounded = [one for one in self.plan.results if one.rounded != one.value]
        return [
            *self.loads_of_operands,
            *(f"{one.name} = {one.rounded}" for one in rounded),
        ]

    def stored(self, result: Result) -> str:
        """The value of a result, as it is stored."""
        same = self.plan.epilogue.is_empty and result.rounded == result.value
        return result.value if same else result.name

    @property
    def stores_by_pointers(self) -> list[str]:
        """The stores of the results, where they are no descriptors."""
        results = self.plan.results
        return [line for one in results for line in one.store(self.stored(one))]

    @property
    def stores(self) -> list[str]:
        """The stores of the results."""
        if not self.described("results"):
            return self.stores_by_pointers
        corner = "[tile_m * BLOCK_M, tile_n * BLOCK_N]"
        return [
            f"{one.name}_desc.store({corner}, {self.stored(one)})"
            for one in self.plan.results
        ]
