"""The epilogue language: what is read, what is refused, and where."""

import sys

import pytest

from gemmgen.base.errors import Location, SpecErrors
from gemmgen.epilogue.checked import AXES, Operand
from gemmgen.epilogue.expression import in_triton, short_number, spell
from gemmgen.epilogue.parser import compile_epilogue
from gemmgen.tables.functions import OPS


def compiled(text: str):
    return compile_epilogue(
        text, ("acc",), "c", ("a", "b"), lambda offset: Location("s", 1, offset + 1)
    )


@pytest.mark.parametrize(
    ("text", "triton"),
    [
        ("acc", "acc"),
        ("acc*2", "acc * 2.0"),
        ("(acc - (1 - acc)) / (acc * -2.5)", "(acc - (1.0 - acc)) / (acc * -2.5)"),
        ("acc - (bias[n] + 1)", "acc - (bias + 1.0)"),
        ("acc / (2 * alpha[])", "acc / (2.0 * alpha)"),
        ("-(acc + 1) * 3", "-(acc + 1.0) * 3.0"),
        ("where(acc > 0, acc, -acc)", "tl.where(acc > 0.0, acc, -acc)"),
        ("exp(relu(acc))", "tl.exp(relu(acc))"),
    ],
)
def test_expression_is_spelled_with_fewest_brackets(text: str, triton: str) -> None:
    (statement,) = compiled(text).statements
    assert in_triton(statement.value, {}, ["alpha"], "") == triton


@pytest.mark.parametrize(
    ("text", "triton"),
    [
        ("acc * 0.1", "acc * 0.1"),
        ("minimum(acc, 0.1)", "minimum(acc, tl.full((), 0.1, tl.float64))"),
        ("clamp(acc, 0, 6)", "clamp(acc, 0.0, 6.0)"),
        ("where(acc > 0.1, 0, acc)", "tl.where(acc > 0.1, 0.0, acc)"),
        (
            "where(acc > 0, 0, 1)",
            "tl.where(acc > 0.0, tl.full((), 0.0, tl.float64), "
            "tl.full((), 1.0, tl.float64))",
        ),
        ("acc * exp(0.1 * s[])", "acc * tl.exp(tl.full((), 0.1 * s, tl.float64))"),
    ],
)
def test_numbers_that_meet_no_tensor_are_told_their_type(
    text: str, triton: str
) -> None:
    (statement,) = compiled(text).statements
    assert in_triton(statement.value, {}, ["s"], "tl.float64") == triton


def test_spelling_again_changes_nothing() -> None:
    text = "(a1[n] - (a1[n] - acc)) / (acc / 2) * where(acc <= 1e-05, acc, -acc)"
    names = {"a1": "a1[n]"}
    once = spell(
        compiled(text).statements[0].value,
        lambda n: names.get(n, n),
        number=short_number,
    )
    assert once == text


def test_operands_are_in_order_of_first_use() -> None:
    epilogue = compiled("beta[] * skip[m, n] + acc * row[m] + skip[m, n]")
    assert epilogue.operands == (
        Operand("beta", ()),
        Operand("skip", ("m", "n")),
        Operand("row", ("m",)),
    )


@pytest.mark.parametrize("axes", AXES)
def test_every_index_is_read(axes: tuple[str, ...]) -> None:
    text = f"acc + one[{', '.join(axes)}]"
    assert compiled(text).operands == (Operand("one", axes),)


@pytest.mark.parametrize("name", OPS)
def test_every_function_is_read(name: str) -> None:
    arguments = ["acc", "0.5", "2"][: len(OPS[name].parameters)]
    assert compiled(f"{name}({', '.join(arguments)})").functions == (name,)


@pytest.mark.parametrize(
    ("text", "column", "part"),
    [
        ("", 1, "empty"),
        ("acc +", 6, "no expression"),
        ("gelo(acc)", 1, "did you mean 'gelu'?"),
        ("acc + bias", 7, "written with its index"),
        ("acc + bias[k]", 12, "(one of: [], [n], [m], [m, n])"),
        ("acc + bias[b, n]", 12, "not built yet"),
        ("bias[n] + bias[m] + acc", 11, "was bias[n] before"),
        ("acc[n]", 1, "no operand"),
        ("a[n] + acc", 1, "the kernel itself uses"),
        ("x_ptr[n] + acc", 1, "the kernel itself uses"),
        ("gelu[n] + acc", 1, "the kernel itself uses"),
        ("acc > 0", 1, "first argument of where"),
        ("where(acc, 1, 2)", 7, "needs one comparison"),
        ("where(0 < acc < 6, acc, 1)", 7, "needs one comparison"),
        ("relu(acc, 2)", 1, "call it as relu(x)"),
        ("clamp(acc, lo=1, hi=2)", 1, "call it as clamp(x, lo, hi)"),
        ("sqrt(2) * acc", 1, "write its value"),
        ("acc ** 2", 1, "not part of the epilogue language"),
        ("acc if acc else acc", 1, "not part of the epilogue language"),
        ("acc.real", 1, "not part of the epilogue language"),
        ("acc + 'x'", 7, "cannot hold"),
        ("acc + True", 7, "not a number"),
        ("acc + 1e999", 7, "too large"),
        ("acc + " + "9" * 400, 7, "too large"),
        ("relu(bias[n])", 1, "never uses 'acc'"),
        ("out = acc\nout = acc", 11, "already a name"),
        ("acc\nacc", 1, "name = "),
        ("import os", 1, "name = "),
        ("x = y = acc", 1, "name = "),
        ("X = acc", 1, "lower-case"),
        ("ａcc + acc", 1, "ASCII"),
        ("acc # comment", 5, "cannot hold"),
        ("acc\r\n", 4, "ASCII"),
        # Python 3.10 reads so many signs, and the depth of the tree stops at the 33rd.
        ("-" * 3000 + "acc", 1 if sys.version_info >= (3, 11) else 34, "nests"),
        ("(" * 300 + "acc" + ")" * 300, 201, "parentheses"),
        ("+".join(["acc"] * 100), 1, "nests"),
        ("acc + " * 2000 + "acc", 1, "at most 4096"),
    ],
)
def test_mistake_is_located(text: str, column: int, part: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        compiled(text)
    first = caught.value.errors[0]
    assert part in first.message
    assert first.location.column == column
    assert "\n" not in str(first)
