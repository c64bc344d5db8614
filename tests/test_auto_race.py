"""The race of tuned against modelled tables, with a fake clock."""

import pytest

torch = pytest.importorskip("torch")

from gemmgen.spec.shapes import Shape  # noqa: E402
from tests import scripts  # noqa: E402
from tests.fake_device import FakeDevice  # noqa: E402


@pytest.fixture(scope="module")
def script():
    return scripts.script("auto_race")


def linear(x, w):
    return torch.nn.functional.linear(x, w)


def raced(script, tuned, auto):
    plans = {plan.name: plan for plan in script.load(script.SPEC)}
    shape = Shape(24, 16, 32)
    return script.raced(plans["linear_bf16"], shape, tuned, auto, FakeDevice(), 0.001)


def test_both_are_timed_at_every_shape(script) -> None:
    row = raced(script, linear, linear)
    assert (row.kernel, str(row.shape)) == ("linear_bf16", "24x16x32")
    assert row.tuned == row.auto > 0


def test_a_wrong_kernel_is_no_contestant(script) -> None:
    with pytest.raises(RuntimeError, match="24x16x32, auto: wrong results"):
        raced(script, linear, lambda x, w: linear(x, w) + 1)


def test_the_report_has_a_mean_a_kernel_and_a_row_a_shape(script) -> None:
    rows = [
        script.Row("one", Shape(1, 2, 3), 9.0, 10.0),
        script.Row("one", Shape(4, 5, 6), 10.0, 10.0),
        script.Row("two", Shape(4, 5, 6), 8.0, 10.0),
    ]
    text = script.report(rows, {"gpu": "none"})
    assert "| one | 2 | 0.949 | 0.900 |" in text
    assert "| all | 3 | 0.896 | 0.800 |" in text
    assert "| two | 4x5x6 | 8.0 | 10.0 | 0.800 |" in text
