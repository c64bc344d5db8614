"""Modules of kernels: what stands for what, models that have them, faults of them."""

from pathlib import Path

import pytest

from gemmgen.base.names import class_name
from gemmgen.output import builder
from gemmgen.problem.layer import Layer
from gemmgen.render import render
from gemmgen.render.names.meanings import NameTaken
from gemmgen.select.plan import Plan, plans
from gemmgen.spec.parse import parse
from tests.cases import names_in, said_by
from tests.once import asked, once
from tests.slow import all_but

HEAD = "gemmgen: 1\ntargets: [sm_80]\ndefaults: {op: linear, module: true, dtype: fp64,"
HEAD += " schedule: tiled, tiles: {m: 16, n: 16, k: 16}}\nkernels:\n"
SPEC = f"""{HEAD}
  - {{name: up, epilogue: "gelu(acc + bias[n])", grad: true}}
  - {{name: down, epilogue: "alpha[] * (acc + bias[n]) + r[m, n]", grad: true}}
  - {{name: plain, grad: true}}
  - {{name: affine, epilogue: "bias[n] + acc", grad: true}}
  - name: served
    dtype: fp16
    epilogue: silu(acc + bias[n])
    operands: {{bias: fp32}}
"""


def planned(text: str) -> Plan:
    (one,) = plans(parse(f"{HEAD}  - {{{text}}}\n".encode(), "spec.yaml"))
    return one


@pytest.mark.parametrize(
    ("epilogue", "activation"),
    [
        ("acc", "x"),
        ("acc + bias[n]", "x"),
        ("bias[n] + acc", "x"),
        ("relu(bias[n] + acc)", "relu(x)"),
        ("leaky_relu(acc, 0.01)", "leaky_relu(x, 0.01)"),
        ("clamp(acc + bias[n], 0, 6)", "clamp(x, 0, 6)"),
        ("relu(acc) + bias[n]", None),
        ("acc * bias[n]", None),
        ("acc + bias[m]", None),
        ("acc + bias[m, n]", None),
        ("relu(acc + bias[n]) + residual[m, n]", None),
        ("alpha[] * acc", None),
        ("acc + shift[n]", None),
    ],
)
def test_what_a_module_stands_for(epilogue: str, activation: str | None) -> None:
    assert Layer(planned(f"name: up, epilogue: '{epilogue}'")).activation == activation


def test_statements_are_one_expression() -> None:
    text = 'name: up, epilogue: "pre = acc + bias[n]; out = gelu(pre)"'
    assert Layer(planned(text.replace("; ", "\\n"))).activation == "gelu(x)"
    both = text.replace("; ", "\\n") + ", outputs: [out, pre]"
    assert Layer(planned(both)).activation is None
    other = "name: up, dtype: {a: fp16, out: fp32}"
    assert Layer(planned(other)).activation is None


def test_only_a_bias_by_columns_is_a_parameter() -> None:
    by_row = Layer(planned("name: up, epilogue: 'acc + bias[m] + s[n]'"))
    assert by_row.parameters == {"w": "weight"} and by_row.passed == ["x", "bias", "s"]
    by_column = Layer(planned("name: up, epilogue: 'r[m, n] + acc + bias[n]'"))
    assert by_column.parameters == {"w": "weight", "bias": "bias"}
    assert by_column.passed == ["x", "r"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("mlp_up", "MlpUp"), ("a", "A"), ("w8_a16", "W8A16"), ("up__to_", "UpTo")],
)
def test_names_of_classes(name: str, kind: str) -> None:
    assert class_name(name) == kind


@pytest.mark.parametrize("operand", ["kernel", "forward", "activation", "weight_type"])
def test_an_operand_that_a_class_has_another_thing_by_the_name_of(operand: str) -> None:
    """Either is as good as any other name, or is refused where the spec has it."""
    plan = planned(f"name: up, epilogue: 'acc + {operand}[m, n]'")
    try:
        made = render.files(plan, "spec.yaml")["up/module.py"]
    except NameTaken as taken:
        assert taken.names == (operand,)
    else:
        assert f"(self, x: Tensor, {operand}: Tensor)" in made


def test_the_package_has_modules_of_kernels_that_stay(tmp_path: Path) -> None:
    """And a second spec's, unless the two would have one name."""
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(f"{HEAD}  - {{name: up_1}}\n")
    second.write_text(f"{HEAD}  - {{name: down}}\n  - {{name: bare, module: false}}\n")
    builder.build([first])
    builder.build([second])
    text = (tmp_path / "generated" / "__init__.py").read_text()
    assert '"Down", "Up1", "bare", "down", "up_1",' in text
    assert '"Up1": "up_1"' in text and "Bare" not in text
    assert builder.check([first]).clean and builder.check([first, second]).clean
    second.write_text(f"{HEAD}  - {{name: up1}}\n")
    with pytest.raises(builder.UsageError, match="both named Up1; rename one"):
        builder.build([second])
    second.write_text(f"{HEAD}  - {{name: down, module: false}}\n")
    builder.build([second])
    assert not (tmp_path / "generated" / "down" / "module.py").exists()
    assert "Down" not in (tmp_path / "generated" / "__init__.py").read_text()


def test_a_module_that_was_edited_or_lost_is_drift(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(f"{HEAD}  - {{name: up}}\n")
    builder.build([spec])
    file = tmp_path / "generated" / "up" / "module.py"
    text = file.read_text()
    for changed in (text.replace('"x"', '"relu(x)"'), None):
        file.unlink()
        if changed is not None:
            file.write_text(changed)
        report = builder.check([spec])
        assert [one.name for one in report.drift] == ["up/module.py"]
        builder.build([spec], force=True)
        assert file.read_text() == text


NAMES = names_in("layers_script")
FAST = set(NAMES) - {"every_fault_of_a_module_is_found"}


@pytest.fixture(scope="module")
def said(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """What went wrong in each case whose test runs."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")

    def run(folder: Path) -> dict[str, str]:
        (folder / "spec.yaml").write_text(SPEC)
        builder.build([folder / "spec.yaml"], folder / "made")
        return said_by("layers_script", folder, *asked(request))

    return once(tmp_path_factory, "layers", run)


@pytest.mark.parametrize("name", all_but(FAST, NAMES))
def test_what_a_model_does_with_modules(said: dict[str, str], name: str) -> None:
    assert said[name] == "", said[name]
