"""The kernels that a backward is made of, as specs, built like those of any other."""

from dataclasses import dataclass, replace

from gemmgen.epilogue.algebra import times
from gemmgen.epilogue.checked import AXES, Statement
from gemmgen.epilogue.expression import Name, Node, names, spell
from gemmgen.epilogue.gradient import gradient_name
from gemmgen.epilogue.shorthand import Piece
from gemmgen.problem.backward import Backward
from gemmgen.spec.parse import Dtypes, KernelSpec
from gemmgen.tables.operations import OPERATIONS, Operation

FORWARD = "forward"
MAIN_GRAD = "main_grad"
"""What a gradient is added to: an attribute of its tensor, as in Megatron."""


@dataclass(frozen=True)
class Derived:
    """A kernel that another one's backward needs: `part` is what it is of it.

    `operation` has the names of its matrices; its operands come in the order of
    `operands`.
    """

    spec: KernelSpec
    part: str
    operation: Operation
    operands: tuple[str, ...]


def derived_of(spec: KernelSpec, backward: Backward) -> tuple[Derived, ...]:
    """What has to be built beside a kernel."""
    found = []
    if backward.kept is not None:
        found.append(_forward(spec, backward, backward.kept))
    if backward.multiplied:
        found += [_of_lhs(spec, backward), of_rhs := _of_rhs(spec, backward)]
        if backward.accumulates:
            found.append(_added(spec, backward, of_rhs))
    return tuple(found)


def derived_parts(backward: Backward) -> list[str]:
    """What they are called, within the kernel."""
    both = backward.problem.contraction.inputs if backward.multiplied else ()
    parts = [FORWARD] if backward.kept else []
    parts += [gradient_name(one.name) for one in both]
    if backward.accumulates:
        parts.append(added_part(backward))
    return parts


def added_part(backward: Backward) -> str:
    """What the kernel is called that adds B's gradient to one that there is."""
    return f"{gradient_name(backward.problem.contraction.first.name)}_added"


def part_name(kernel: str, part: str) -> str:
    """What a kernel's derived one is called."""
    return f"{kernel}_{part}"


def multiplied_name(backward: Backward) -> str:
    """What the gradient that A and B are multiplied with is called."""
    return backward.direct or gradient_name(backward.sum)


def _forward(spec: KernelSpec, backward: Backward, kept: str) -> Derived:
    """The kernel itself, which stores one more of its values."""
    results = [(one.name, one.dtype) for one in backward.problem.results]
    lines = [_line(one, backward) for one in backward.forward]
    operands = tuple(one.name for one in backward.problem.operands)
    mine = _spec(spec, FORWARD, "\n".join(lines))
    mine = replace(mine, outputs=(*results, (kept, backward.kept_dtype)))
    return Derived(mine, FORWARD, OPERATIONS[spec.op], operands)


def _line(statement: Statement, backward: Backward) -> str:
    return f"{statement.target} = {_spelled(statement.value, backward)}"


def _spelled(node: Node, backward: Backward) -> str:
    """An expression as the language writes it, operands with their index."""
    operands = backward.problem.operands
    indexes = {one.name: AXES[one.axes].text for one in operands}
    return spell(node, lambda name: name + indexes.get(name, ""))


def _of_lhs(spec: KernelSpec, backward: Backward) -> Derived:
    """grad A = grad acc · Bᵀ, or its transpose where A is stored transposed."""
    both, given = backward.problem.contraction, multiplied_name(backward)
    b = "T" if both.first.transposed else "N"
    if both.lhs.transposed:
        return _gemm(spec, backward, both.lhs.name, both.first.name, given, b + "T")
    flipped = "N" if both.first.transposed else "T"
    return _gemm(spec, backward, both.lhs.name, given, both.first.name, "N" + flipped)


def _of_rhs(spec: KernelSpec, backward: Backward) -> Derived:
    """grad B = Aᵀ · grad acc, or its transpose where B is stored transposed."""
    both, given = backward.problem.contraction, multiplied_name(backward)
    a = "T" if both.lhs.transposed else "N"
    if both.first.transposed:
        return _gemm(spec, backward, both.first.name, given, both.lhs.name, "T" + a)
    flipped = "N" if both.lhs.transposed else "T"
    return _gemm(spec, backward, both.first.name, both.lhs.name, given, flipped + "N")


def _gemm(
    spec: KernelSpec, backward: Backward, of: str, lhs: str, rhs: str, layout: str
) -> Derived:
    part = gradient_name(of)
    operation = replace(OPERATIONS["gemm"], lhs=lhs, rhs=(rhs,), result=part)
    (product,) = operation.accumulators
    factor = backward.factor
    value = Name(product) if factor is None else times(factor, Name(product))
    mine = replace(
        _spec(spec, part, _spelled(value, backward)),
        op=operation.name,
        layout=layout,
        dtype=Dtypes(spec.dtype.a, spec.dtype.b, spec.dtype.acc, spec.dtype.a),
        operands={},
        outputs=(),
        tiles=(),
        autotune=None,
    )
    return Derived(mine, part, operation, tuple(dict.fromkeys(names(value))))


def _added(spec: KernelSpec, backward: Backward, gradient: Derived) -> Derived:
    """The kernel of a gradient, which adds it to another: in fp32, or in fp64."""
    own, part = gradient.spec, added_part(backward)
    total = f"{MAIN_GRAD}_2" if MAIN_GRAD in gradient.operands else MAIN_GRAD
    text = f"{own.epilogue} + {total}{AXES['m', 'n'].text}"
    mine = replace(
        own,
        name=part_name(spec.name, part),
        epilogue=text,
        pieces=(Piece(text, None),),
        dtype=replace(own.dtype, out=backward.problem.accumulator),
    )
    operation = replace(gradient.operation, result=part)
    return Derived(mine, part, operation, (*gradient.operands, total))


def _spec(spec: KernelSpec, part: str, epilogue: str) -> KernelSpec:
    """A kernel's spec with another name and epilogue."""
    return replace(
        spec,
        name=part_name(spec.name, part),
        epilogue=epilogue,
        pieces=(Piece(epilogue, None),),
        grad=False,
        grad_accumulate=False,
        module=False,
    )
