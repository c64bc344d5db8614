"""The package of an output folder: its names are launchers, whatever was imported."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from gemmgen.output import builder
from gemmgen.output.alone import shared_texts
from gemmgen.verification.contract.package import check_package
from gemmgen.verification.example import subject
from gemmgen.verification.example.one_example import Wrong
from tests import forked
from tests.slow import all_but

SPEC = """\
gemmgen: 1
defaults: {dtype: fp16, tiles: {m: 16, n: 16, k: 16}}
kernels:
  - {name: first, op: linear}
  - {name: second, op: linear, epilogue: relu(acc)}
"""
ORDERS = {
    "the package": "import made; made.first; made.second",
    "a name": "from made import first, second",
    "a submodule": "import made.first, made.second",
    "a submodule, then the name": "import made.first; from made import first",
    "by another name": "import made.second as other, made; assert other is made.second",
    "all": "from made import *; assert first and second",
    "from a submodule": "from made.first import first; import made",
    "by its whole name": "import importlib; importlib.import_module('made.second')",
    "twice": "import made, importlib; made.first; importlib.reload(made)",
}
AFTER = """
import made, sys
from types import FunctionType
for name in ("first", "second"):
    launcher = getattr(made, name)
    assert isinstance(launcher, FunctionType), (name, launcher)
    assert launcher is getattr(sys.modules[f"made.{name}"], name)
assert {"first", "second", "__all__"} <= set(dir(made))
assert not hasattr(made, "third")
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    (folder / "spec.yaml").write_text(SPEC)
    builder.build([folder / "spec.yaml"], folder / "made")
    return folder


def python(home: Path, code: str) -> str:
    """What a script prints that runs beside the folder."""
    done = forked.python(home, "-c", code)
    assert done.returncode == 0, done.stderr
    return done.stdout


FAST = {"a name", "twice", "a submodule, then the name"}


@pytest.mark.parametrize("order", all_but(FAST, ORDERS))
def test_a_name_is_the_launcher_in_whatever_order(home: Path, order: str) -> None:
    python(home, f"{ORDERS[order]}\n{AFTER}")


def test_a_kernel_is_imported_alone(home: Path) -> None:
    """Neither with the others, nor with one that does not import."""
    said = python(home, "import made, sys; print('made.first' in sys.modules)")
    assert said == "False\n"
    second = home / "made" / "second" / "__init__.py"
    text = second.read_text()
    second.write_text(text + "raise RuntimeError\n")
    try:
        python(home, "from made import first")
        python(
            home,
            "import made\ntry:\n    made.second\nexcept RuntimeError:\n    pass\n"
            "else:\n    raise AssertionError\nmade.first",
        )
    finally:
        second.write_text(text)


@pytest.mark.slow
def test_types_are_known(home: Path) -> None:
    """`generated.first` and `from generated import first` are functions of tensors."""
    script = home / "typed.py"
    script.write_text(
        "import made\nfrom made import first\n"
        "reveal_type(first)\nreveal_type(made.second)\nmade.third\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--config-file=", script.name),
            *("--follow-imports=silent", "--ignore-missing-imports"),
        ],
        cwd=home, capture_output=True, text=True,
    )  # fmt: skip
    assert (
        done.stdout.count("Cached[[x: torch._tensor.Tensor, w: torch._tensor.Ten") == 2
    )
    assert 'typed.py:5: error: Module has no attribute "third"' in done.stdout
    assert "Found 1 error in 1 file" in done.stdout


def test_the_verification_of_a_package_finds_what_is_wrong(home: Path) -> None:
    made = home / "made"
    assert check_package(made, "first") > 0
    assert check_package(home, "first") == 0  # nobody made a package of it
    runtime = made / "_runtime" / "__init__.py"
    text = shared_texts()["_runtime/__init__.py"]
    for old, new in (
        ("value = getattr(value, name)", "pass"),
        ("isinstance(value, ModuleType) and ", ""),
        ('raise AttributeError(f"module', 'return (f"module'),
        ("*self.__all__", ""),
    ):
        assert text.count(old) == 1
        runtime.write_text(text.replace(old, new))
        try:
            with pytest.raises((Wrong, AttributeError)):
                check_package(made, "first")
        finally:
            runtime.write_text(text)
            subject.forget()
