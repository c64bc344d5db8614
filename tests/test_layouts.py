"""A matrix spells its own fragments, whichever way it is stored."""

import pytest

from gemmgen.tables.layouts import LAYOUTS, Matrix


def test_names_say_how_operands_are_stored() -> None:
    for name, layout in LAYOUTS.items():
        assert name == "".join(
            "NT"[t] for t in (layout.a_transposed, layout.b_transposed)
        )


def test_stored_as_multiplied() -> None:
    a = Matrix("a", ("m", "k"))
    assert a.stored_sizes == ("M", "K")
    assert a.product_text == "a"


def test_stored_transposed() -> None:
    w = Matrix("w", ("k", "n"), transposed=True)
    assert w.stored_sizes == ("N", "K")
    assert w.strides == ("stride_wk", "stride_wn")
    assert w.contiguous_axis == "k"
    assert w.product_text == "w.T"
    assert w.offsets == "offs_k[:, None] * stride_wk + offs_n[None, :] * stride_wn"


@pytest.mark.parametrize("name", ["c", "residual"])
def test_stride_names_stay_readable(name: str) -> None:
    assert Matrix(name, ("m", "n")).strides[0] in ("stride_cm", "stride_residual_m")
