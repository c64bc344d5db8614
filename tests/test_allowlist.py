"""The gate before the output folder: kernels pass, anything else does not."""

import ast
from pathlib import Path

import pytest

from gemmgen.base.errors import SpecErrors
from gemmgen.gate.allowlist import NotAllowed, check_module
from gemmgen.render import render
from gemmgen.render.names.parts import MODULE, public
from gemmgen.select.plan import plans
from gemmgen.spec.parse import parse
from tests import folders

MODULES = sorted(folders.GENERATED.glob("[a-z]*/*.py"))
PLAIN = {stem: folders.text_of("gemm_nn_fp16", stem) for stem in ("__init__", "tiled")}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_file_passes(path: Path) -> None:
    tree, kernel = ast.parse(path.read_text()), path.parent.name
    beside = {"": kernel} if path.stem == MODULE else {}
    check_module(tree, path.name, public(kernel, path.stem), beside)


@pytest.mark.parametrize(
    "extra",
    [
        "import os",
        "import torch as t",
        "from os import path",
        "from . import secrets",
        "from .._runtime.support import architecture as a",
        "print(1)",
        "x = open",
        "TILES = (Tile(sm=__import__('os').getpid()),)",
        "class A: pass",
        "def other():\n    class A:\n        x = 1",
        "def other():\n    exec('1')",
        "def other():\n    return torch.load",
        "def other(x):\n    return x.__class__",
        "def other(x):\n    return ().__class__",
        "def other(x):\n    return [y for y in x]",
        "def other(x):\n    return lambda: x",
        "def other(x):\n    return f'{x}'",
        "def other(x):\n    global TILES",
        "def other(x):\n    del x",
        "def other(x):\n    return x if x else x",
        "def other(x):\n    while x:\n        pass",
        "def other(x):\n    try:\n        x\n    except x:\n        x",
        "async def other():\n    pass",
        "@torch.jit\ndef other():\n    return 1",
        "@print\ndef other():\n    return 1",
        "def torch():\n    return 1",
        "def min(x):\n    return x",
        "from .tiled import gemm_nn_bf16_kernel",
        "from .tiled import gemm_nn_fp16_kernel as tiled",
        "from ..gemm_nn_bf16.tiled import gemm_nn_bf16_kernel",
        "LAUNCHES = Launches({'a': open('b')}, ())",
        "LAUNCHES = Launches(lambda: 1, tiled=one)",
        "OTHER = Launches(1, 2)",
        "TILES = (Tile(min),)",
        "LAUNCHES = Launches({'a': None}, ())",
    ],
)
@pytest.mark.parametrize("stem", PLAIN)
def test_anything_else_is_refused(stem: str, extra: str) -> None:
    own = public("gemm_nn_fp16", stem)
    check_module(ast.parse(PLAIN[stem]), stem, own)
    with pytest.raises(NotAllowed):
        check_module(ast.parse(f"{PLAIN[stem]}\n\n{extra}\n"), stem, own)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(KernelLinear):", "(KernelLinear, metaclass=type):"),
        ("(KernelLinear):", "(Tensor):"),
        ("class ", "@torch.jit\nclass "),
        ("    kernel = ", "    other = 1\n    kernel = "),
        ("staticmethod(linear_bias_relu)", "staticmethod(open)"),
        ("    def forward(", "    def __init__("),
        ("    def forward(", "    @property\n    def forward("),
        ("self.weight", "self.__class__"),
        ("from . import linear_bias_relu", "from . import secrets as linear_bias_relu"),
        ("class LinearBiasRelu", "class Other"),
    ],
)
def test_a_class_is_a_layer_and_nothing_else(before: str, after: str) -> None:
    text = folders.text_of("linear_bias_relu", MODULE)
    assert before in text
    given = (MODULE, "LinearBiasRelu", {"": "linear_bias_relu"})
    check_module(ast.parse(text), *given)
    with pytest.raises(NotAllowed):
        check_module(ast.parse(text.replace(before, after)), *given)


@pytest.mark.parametrize("stem", PLAIN)
def test_what_others_take_is_defined_once(stem: str) -> None:
    own = public("gemm_nn_fp16", stem)
    with pytest.raises(NotAllowed, match=f"does not define {own} once"):
        extra = f"def {own}():\n    return 1"
        check_module(ast.parse(f"{PLAIN[stem]}\n\n{extra}\n"), stem, own)


HOSTILE = [
    '"""',
    "'''; import os",
    "\nimport os\n",
    "\rimport os\r",
    "{{ 7 * 7 }}",
    "{% raw %}",
    "{# x #}",
    "# comment",
    "\\",
    "__import__('os').system('true')",
    "acc.__class__",
    "(lambda: 1)()",
    "\u2028import os",
    "\x0cimport os",
    "ａｃｃ",
    "../../etc/passwd",
    "/etc/passwd",
    "con",
    "import",
    "None",
    "os",
]
PLACES = {
    "name": "name",
    "dtype": "dtype",
    "layout": "layout",
    "op": "op",
    "epilogue": "epilogue",
    "precision": "precision",
    "schedule": "schedule",
    "autotune": "autotune",
    "operand dtype": "operands",
    "output": "outputs",
}


def spec_text(place: str, hostile: str) -> str:
    quoted = '"' + "".join(f"\\u{ord(c):04x}" for c in hostile) + '"'
    entry = {"name": "k", "op": "gemm", "layout": "NN", "dtype": "fp16"}
    entry |= {"epilogue": "acc + bias[n]"} if place == "operands" else {}
    entry[place] = {
        "operands": f"{{bias: {quoted}}}",
        "outputs": f"[{quoted}]",
    }.get(place, quoted)
    lines = "".join(f"    {key}: {value}\n" for key, value in entry.items())
    return f"gemmgen: 1\nkernels:\n  -\n{lines}"


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
def test_hostile_text_reaches_no_module(place: str, hostile: str) -> None:
    try:
        (made,) = plans(parse(spec_text(place, hostile).encode(), "spec.yaml"))
    except SpecErrors as errors:
        assert all(c.isprintable() or c == "\n" for c in str(errors))
        return
    # Only a name that is harmless by itself may have passed.
    assert (place, hostile) == ("name", "os")
    assert "os/__init__.py" in render.files(made, "spec.yaml")


@pytest.mark.parametrize(
    "source", ['a"b.yaml', "a\nb.yaml", "a\rimport os.yaml", "é\u2028.yaml", "\\.yaml"]
)
def test_a_spec_file_of_any_name_is_harmless(source: str) -> None:
    (made,) = plans(parse(spec_text("epilogue", "acc").encode(), "spec.yaml"))
    for text in render.files(made, source).values():
        ast.parse(text)
        line = text.splitlines()[1 if len(source) < 60 else 2]
        assert line.startswith("# gemmgen-format")
