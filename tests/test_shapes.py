"""Shapes as text and the file that lists them, with every mistake located."""

import subprocess
import sys
from pathlib import Path

import pytest

from gemmgen.base.errors import SpecErrors, UsageError
from gemmgen.spec import shapes
from gemmgen.spec.shapes import Shape
from tests.own import OWN

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ("mlp_up", "mlp_down")


@pytest.mark.parametrize("text", ["1x1x1", "4096x14336x4096", "2147483647x1x8"])
def test_a_shape_is_its_text(text: str) -> None:
    assert str(shapes.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("4096x4096", "must be like 512x512x4096"),
        ("4096 x 4096 x 4096", "must be like"),
        ("4096X4096X4096", "must be like"),
        ("-1x2x3", "must be like"),
        ("0x2x3", "outside of 1 to 2147483647"),
        ("1x2x2147483648", "outside of 1 to"),
        ("٣x2x3", "must be like"),
    ],
)
def test_what_is_no_shape(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        shapes.parse(text)


def test_flops() -> None:
    assert Shape(2, 3, 5).flops == 60


def read(tmp_path: Path, text: str) -> dict[str, tuple[Shape, ...]]:
    path = tmp_path / "shapes.yaml"
    path.write_text(text)
    return shapes.read(path, KERNELS)


def test_a_file(tmp_path: Path) -> None:
    text = "# both forms of a list\nmlp_down: [1x2x3, 4x5x6]\nmlp_up:\n  - 7x8x9\n"
    assert read(tmp_path, text) == {
        "mlp_down": (Shape(1, 2, 3), Shape(4, 5, 6)),
        "mlp_up": (Shape(7, 8, 9),),
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "mlp_upp: [1x2x3]",
            "1:1: unknown kernel 'mlp_upp'; did you mean 'mlp_up'? "
            "(one of: mlp_up, mlp_down)",
        ),
        ("mlp_up:\n  - 1x2", "2:5: shape '1x2' must be like 512x512x4096 (MxNxK)"),
        (
            "mlp_up: [1x2x3, 1x2x3]",
            "1:17: shape 1x2x3 is listed twice for mlp_up",
        ),
        ("mlp_up: 1x2x3", "1:9: the shapes of mlp_up must be a list, not text '1x2x3'"),
        ("mlp_up:", "1:8: the shapes of mlp_up must be a list, not nothing"),
        ("mlp_up: []", "1:9: the list of mlp_up is empty"),
        ("mlp_up: [512]", "1:10: a shape must be like 512x512x4096, not number 512"),
        ("- mlp_up", "1:1: shapes are a map from kernels to lists, not a list"),
        (
            "mlp_up: [1x2x3]\nmlp_up: [1x2x4]",
            "2:1: duplicate key 'mlp_up'; the first is at {file}:1:1",
        ),
        (
            "mlp_up: [&a 1x2x3]",
            "1:10: anchors are not allowed; use 'defaults' or 'for_each' to say a "
            "thing once",
        ),
    ],
    ids=lambda text: text[:24],
)
def test_mistakes_are_located(tmp_path: Path, text: str, says: str) -> None:
    file = str(tmp_path / "shapes.yaml")
    with pytest.raises(SpecErrors) as caught:
        read(tmp_path, text)
    assert str(caught.value) == f"{file}:{says.replace('{file}', file)}"


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    with pytest.raises(SpecErrors) as caught:
        read(tmp_path, "a: [1]\nmlp_up: [x]\nmlp_down: {}\n")
    assert [error.location.line for error in caught.value.errors] == [1, 1, 2, 3]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read '.*none\.yaml'"):
        shapes.read(tmp_path / "none.yaml", KERNELS)


@pytest.mark.parametrize("name", ["suite.yaml", "random_shapes.yaml"])
def test_our_own_files_name_our_own_kernels(name: str) -> None:
    names = list(OWN)
    assert shapes.read(ROOT / "benchmarks" / "speed" / name, names)


def test_the_random_shapes_are_as_drawn() -> None:
    script = ROOT / "benchmarks" / "speed" / "random_shapes.py"
    drawn = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True
    ).stdout
    assert drawn == script.with_suffix(".yaml").read_text()
    (found,) = shapes.read(script.with_suffix(".yaml"), ["linear_bf16"]).values()
    sizes = [size for shape in found for size in shape]
    assert len(found) == 40
    assert 1 <= min(sizes) <= max(sizes) <= 8192
    assert 0.2 < sum(size % 64 == 0 for size in sizes) / len(sizes) < 0.5
    assert 0.2 < sum(size % 8 > 0 for size in sizes) / len(sizes) < 0.5
