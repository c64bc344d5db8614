"""Kernels as operators of torch, in Triton's interpreter, and their names."""

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from gemmgen.output import builder
from tests import forked
from tests.cases import in_interpreter, names_in, said_by
from tests.once import asked, once
from tests.slow import all_but

NAMES = names_in("operators_script")
# Inductor compiles C++; `verify` is seen to find faults elsewhere too.
FAST = set(NAMES) - {"inductor_calls_the_operator", "verify_finds_faults_of_operators"}


@pytest.fixture(scope="module")
def said(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """What went wrong in each case whose test runs."""

    def run(folder: Path) -> dict[str, str]:
        return said_by("operators_script", folder, *asked(request))

    return once(tmp_path_factory, "operators", run)


@pytest.mark.parametrize("name", all_but(FAST, NAMES))
def test_what_torch_does_with_an_operator(said: dict[str, str], name: str) -> None:
    assert said[name] == "", said[name]


# -- names ---------------------------------------------------------------------------

SPEC = """\
gemmgen: 1
defaults: {dtype: fp16, tiles: {m: 16, n: 16, k: 16}}
kernels:
  - {name: first, op: linear, epilogue: "EPILOGUE"}
  - {name: name, op: linear}
"""


def made(folder: Path, epilogue: str = "acc") -> Path:
    """A package `made` in a folder, of two kernels."""
    (folder / "made").mkdir(parents=True, exist_ok=True)
    spec = folder / "spec.yaml"
    spec.write_text(SPEC.replace("EPILOGUE", epilogue))
    builder.build([spec], folder / "made")
    return folder


START = """
import importlib, sys, torch
x, w = torch.eye(16).half(), torch.arange(256).view(16, 16).half()

def fresh():
    for name in [one for one in sys.modules if one.split(".")[0] in ("made", "made2")]:
        del sys.modules[name]
    importlib.invalidate_caches()
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("names"))


def test_a_module_that_is_imported_again_has_the_same_operator(home: Path) -> None:
    code = """
import made.first
packet = torch.ops.made.first
step = torch.compile(lambda x, w: made.first(x, w), backend="aot_eager")
want = step(x, w)
importlib.reload(sys.modules["made.first"])
assert torch.ops.made.first is packet and torch.equal(packet(x, w), want)
old = made.first
fresh()
import made.first
assert made.first is not old and made.first.operator is not old.operator
assert made.first.operator.overload is old.operator.overload is packet.default
assert torch.equal(step(x, w), want) and torch.equal(made.first(x, w), want)
assert not [one for one in dir(torch.ops) if one.startswith("made_")]
"""
    in_interpreter(home, "-c", START + code)


def test_a_folder_by_two_names_has_two_operators(home: Path) -> None:
    code = """
from pathlib import Path
Path("outer").mkdir(exist_ok=True)
Path("outer/inner").exists() or Path("outer/inner").symlink_to(Path("made").resolve())
import made.first, outer.inner.first
ours, theirs = torch.ops.made.first, torch.ops.outer_inner.first
assert ours is not theirs and torch.equal(ours(x, w), theirs(x, w))
assert made.first.operator.overload is ours.default
assert outer.inner.first.operator.overload is theirs.default
"""
    in_interpreter(home, "-c", START + code)


@pytest.mark.slow
def test_folders_of_one_name_do_not_call_each_other(home: Path, tmp_path: Path) -> None:
    """Not even those whose kernels are called with the same arguments."""
    made(tmp_path / "second", "acc * 2")
    made(tmp_path / "third", "acc + bias[n]")
    code = f"""
import made.first
mine = made.first
for folder in ("second", "third"):
    fresh()
    sys.path.insert(0, {str(tmp_path)!r} + "/" + folder)
    import made.first
    if folder == "second":
        second = made.first
third = made.first
compiled = [torch.compile(one, backend="aot_eager") for one in (mine, second)]
assert torch.equal(compiled[0](x, w) * 2, compiled[1](x, w))
assert torch.equal(torch.ops.made.first(x, w), mine(x, w))
assert torch.equal(torch.ops.made_2.first(x, w), second(x, w))
assert torch.equal(torch.ops.made_3.first(x, w, w[0]), third(x, w, w[0]))
"""
    in_interpreter(home, "-c", START + code)


@pytest.mark.slow
def test_a_kernel_that_was_changed_and_loaded_again(tmp_path: Path) -> None:
    made(tmp_path)
    code = """
import made.first
old, step = made.first, torch.compile(made.first, backend="aot_eager")
want = step(x, w)

def built(epilogue):
    from pathlib import Path
    from gemmgen.output import builder
    spec = Path("spec.yaml")
    spec.write_text(SPEC.replace("EPILOGUE", epilogue))
    builder.build([spec], Path("made"))
    fresh()

built("acc * 2")
import made.first
assert torch.equal(torch.ops.made.first(x, w), 2 * want)
built("acc + bias[n]")
import made.first
assert torch.equal(torch.ops.made_2.first(x, w, w[0]), made.first(x, w, w[0]))
assert torch.equal(old(x, w), want)
"""
    in_interpreter(tmp_path, "-c", f"SPEC = {SPEC!r}\n{START}{code}")


def test_what_nobody_holds_is_gone_and_says_so(home: Path) -> None:
    code = """
import gc, weakref
import made.first
packet, gone = torch.ops.made.first, weakref.ref(made.first)
del made
fresh()
gc.collect()
assert gone() is None
try:
    packet(x, w)
except RuntimeError as error:
    assert "made::first: its module is gone; import it again" in str(error), error
else:
    raise AssertionError
import made.first
assert packet(x, w).shape == (16, 16)
"""
    in_interpreter(home, "-c", START + code)


def test_a_kernel_with_a_name_of_torch_s(home: Path) -> None:
    code = """
from made import name
assert torch.equal(torch.ops.made.name_(x, w), name(x, w))
from made._runtime.operators.registry import namespaces
import itertools
first = {one: next(namespaces(f"{one}.kernel")) for one in
         ("made", "a.b.c", "prim", "aten", "import_module", "my-kernels", "2d",
          "größe.class", "class")}
assert first == {"made": "made", "a.b.c": "a_b_c", "prim": "prim_2", "aten": "aten_2",
    "import_module": "import_module_2", "my-kernels": "my_kernels", "2d": "_2d",
    "größe.class": "gr__e_class", "class": "class_"}, first
"""
    in_interpreter(home, "-c", START + code)


def test_a_kernel_is_an_operator_in_little_time(home: Path) -> None:
    """Importing the registration costs no module of torch that takes long."""
    code = """
import made.first
heavy = {"torch._dynamo", "torch._inductor", "torch.distributed.tensor", "sympy"}
assert not heavy & (set(sys.modules) - before), heavy & (set(sys.modules) - before)
"""
    before = "import torch, triton, sys; before = set(sys.modules)\n"
    in_interpreter(home, "-c", before + code, modules=forked.TORCH)
