"""Types of 8 bits and their scales, which users cannot have yet, row by row."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from gemmgen.base.errors import SpecErrors
from gemmgen.epilogue.checked import AXES, Epilogue
from gemmgen.epilogue.expression import spell
from gemmgen.epilogue.parser import compile_epilogue
from gemmgen.problem.bindings import scaled, scales_of
from gemmgen.problem.contraction import Contraction, contraction_of
from gemmgen.runtime.tile import TYPE_NAMES
from gemmgen.select.plan import plans
from gemmgen.spec.parse import parse
from gemmgen.tables.dtypes import DTYPES
from gemmgen.tables.operations import OPERATIONS
from gemmgen.tables.scalings import SCALINGS
from gemmgen.verification.interpret.interpreter import _cast, factor
from gemmgen.verification.stand_in.compiled import ELEMENTS, host_type

SHORT = [row for row in DTYPES.values() if row.scaled and row.name != "int8"]


def compiled(text: str, contraction: Contraction) -> Epilogue:
    sums = contraction.accumulators
    return compile_epilogue(text, sums, "y", (), lambda offset: pytest.fail(text))


def spelled(epilogue: Epilogue) -> list[str]:
    index = {one.name: AXES[one.axes].text for one in epilogue.operands}
    return [
        f"{one.target} = " + spell(one.value, lambda name: name + index.get(name, ""))
        for one in epilogue.statements
    ]


@pytest.mark.parametrize(
    ("op", "scaling", "before", "after"),
    [
        ("gemm", "row", "acc", ["y = acc * scale_a[m] * scale_b[n]"]),
        ("gemm", "tensor", "acc", ["y = acc * scale_a[] * scale_b[]"]),
        ("gemm", "none", "relu(acc)", ["y = relu(acc)"]),
        (
            "linear", "row", "gelu(bias[n] + acc)",
            ["y = gelu(bias[n] + acc * scale_x[m] * scale_w[n])"],
        ),
        (
            "gated_linear", "row", "silu(gate) * up",
            [
                "y = silu(gate * scale_x[m] * scale_w_gate[n]) * "
                "(up * scale_x[m] * scale_w_up[n])"
            ],
        ),
        (
            "linear", "row", "pre = acc + r[m, n]\nout = relu(pre)",
            ["pre = acc * scale_x[m] * scale_w[n] + r[m, n]", "out = relu(pre)"],
        ),
    ],
)  # fmt: skip
def test_sums_are_scaled_wherever_they_are_used(
    op: str, scaling: str, before: str, after: list[str]
) -> None:
    contraction = contraction_of(OPERATIONS[op], "NT")
    found = scaled(compiled(before, contraction), SCALINGS[scaling], contraction)
    assert spelled(found) == after
    used = [name for name in found.used if name.startswith("scale_")]
    assert set(used) == set(scales_of(SCALINGS[scaling], contraction))


def test_scales_are_operands_in_order_of_first_use() -> None:
    contraction = contraction_of(OPERATIONS["linear"], "NT")
    epilogue = compiled("bias[n] + acc * alpha[]", contraction)
    found = scaled(epilogue, SCALINGS["row"], contraction)
    names = [one.name for one in found.operands]
    assert names == ["bias", "scale_x", "scale_w", "alpha"]


def error(lines: str, head: str = "") -> str:
    text = f"gemmgen: 1\n{head}kernels:\n  - name: k\n    op: linear\n{lines}"
    with pytest.raises(SpecErrors) as caught:
        plans(parse(text.encode(), "spec.yaml"))
    return str(caught.value)


def test_only_what_holds_few_bits_is_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "    dtype: bf16\n    scaling: row\n"
    assert error(lines) == "spec.yaml:6:14: scaling 'row' is not built yet"
    row = replace(SCALINGS["row"], built=True)
    monkeypatch.setitem(SCALINGS, row.name, row)
    says = "scaling is for fp8 and int8 inputs; dtype is bf16"
    assert error(lines) == f"spec.yaml:6:14: {says}"


def test_a_type_that_a_target_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DTYPES, "bf16", replace(DTYPES["bf16"], since=89))
    found = error("    dtype: bf16\n", "targets: [sm_80, sm_90]\n")
    assert found == "spec.yaml:6:12: bf16 needs sm_89, sm_80 is a target"


def test_all_know_the_same_types_by_the_same_names() -> None:
    assert TYPE_NAMES.keys() <= DTYPES.keys()
    assert all(row.names for row in DTYPES.values() if row.name not in TYPE_NAMES)
    assert set(ELEMENTS.values()) == {
        getattr(torch, row.torch) for row in DTYPES.values()
    }
    for row in DTYPES.values():
        assert getattr(torch, row.torch).itemsize == row.bytes
        assert getattr(tl, row.triton).primitive_bitwidth == 8 * row.bytes
    assert [host_type(getattr(torch, one)) for one in ("bfloat16", "int8")] == [9, 0]


@pytest.mark.parametrize("row", SHORT, ids=lambda row: row.name)
def test_the_interpreter_reads_and_rounds_8_bits_as_torch_does(row) -> None:
    bits = np.arange(256, dtype=np.uint8)
    short, in_torch = getattr(tl, row.triton), getattr(torch, row.torch)
    want = torch.from_numpy(bits).view(in_torch).float().numpy()
    np.testing.assert_array_equal(factor(TensorHandle(bits, short), None), want)
    wide = _cast(None, TensorHandle(bits, short), tl.float32)
    np.testing.assert_array_equal(wide.data, want)
    given = np.linspace(-3, 3, 101, dtype=np.float32)
    made = _cast(None, TensorHandle(given, tl.float32), short)
    rounded = torch.from_numpy(given).to(in_torch).view(torch.uint8).numpy()
    np.testing.assert_array_equal(made.data, rounded)
