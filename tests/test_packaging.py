"""What is shipped: wheel and sdist are whole, and light to import.

The wheel is installed into an empty environment that holds the dependencies it names
and nothing else: no torch, no triton, no checkout.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator, Sequence
from email import message_from_bytes
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import gemmgen
from gemmgen.base import version
from tests.once import once
from tests.slow import all_but

ROOT = Path(__file__).resolve().parent.parent
SPEC = ROOT / "spec.yaml"
HEAVY = "torch", "triton", "numpy", "hypothesis"
# Enough kernels for workers, with tiles, which take long to choose.
QUICK = """\
gemmgen: 1
defaults: {op: gemm, tiles: {m: 64, n: 64, k: 64}}
kernels:
  - {name: first, layout: NN, dtype: fp16}
  - name: gemm_{layout}_{dtype}
    for_each: {layout: [NN, NT, TN, TT], dtype: [bf16, fp16, fp32]}
"""


def hatch(folder: Path, source: Path, *options: str) -> Path:
    """Build `source` into `folder` without a network."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder), *options],
        cwd=source,
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist of this checkout."""
    return once(tmp_path_factory, "dist", lambda folder: hatch(folder, ROOT))


def wheel_in(folder: Path) -> Path:
    (wheel,) = folder.glob("*.whl")
    return wheel


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel but for its list of them."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/RECORD")]
        return {name: archive.read(name) for name in names}


def required(requirements: Sequence[str]) -> Iterator[str]:
    """The distributions that requirements lead to, extras left out."""
    for text in requirements:
        one = Requirement(text)
        if one.marker is None or one.marker.evaluate({"extra": ""}):
            yield one.name
            yield from required(distribution(one.name).requires or ())


def link_dependencies(wheel: Path, target: Path) -> None:
    """Put what a wheel depends on, as installed for these tests, into `target`."""
    files = contents(wheel)
    (metadata,) = [files[name] for name in files if name.endswith("/METADATA")]
    needs = message_from_bytes(metadata).get_all("Requires-Dist", [])
    for name in set(required(needs)):
        package = distribution(name)
        tops = {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}
        for top in tops:
            link = target / top
            if not link.exists():
                link.symlink_to(package.locate_file(top))


@pytest.fixture(scope="module")
def python(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and its dependencies."""
    return once(tmp_path_factory, "env", lambda home: installed(dist, home))


def installed(dist: Path, home: Path) -> Path:
    """Make an environment with the wheel; its interpreter."""
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel_in(dist))], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    link_dependencies(wheel_in(dist), site)
    return python


def run(python: Path, *arguments: str, cwd: Path) -> str:
    """What a Python prints that knows nothing of this checkout."""
    alone = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    done = subprocess.run(
        [str(python), *arguments], cwd=cwd, env=alone, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_wheel_holds_templates_types_and_licence(dist: Path) -> None:
    names = contents(wheel_in(dist)).keys()
    templates = {path.name for path in (ROOT / "templates").iterdir()}
    shipped = {name for name in names if name.startswith("gemmgen/_templates/")}
    assert shipped == {f"gemmgen/_templates/{name}" for name in templates}
    modules = {
        path.relative_to(ROOT).as_posix() for path in ROOT.glob("gemmgen/**/*.py")
    }
    assert modules | {"gemmgen/py.typed"} <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def extract(sdist: Path, folder: Path) -> None:
    """Unpack, with the filter that the first releases of 3.10 and 3.11 lack."""
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)


def test_wheel_holds_nothing_else(dist: Path) -> None:
    """Above all no `generated`: as a top-level module that would be anybody's."""
    tops = {name.split("/")[0] for name in contents(wheel_in(dist))}
    assert tops == {"gemmgen", f"gemmgen-{version.VERSION}.dist-info"}


def test_wheel_of_the_sdist_is_the_wheel(dist: Path, tmp_path: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    extract(sdist, tmp_path)
    (source,) = tmp_path.iterdir()
    for name in (
        "spec.yaml",
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "docs/language.md",
        "benchmarks/README.md",
        "LICENSE",
        "templates",
        "generated",
        "tests",
    ):
        assert (source / name).exists()
    again = hatch(tmp_path / "dist", source, "-t", "wheel")
    assert contents(wheel_in(again)) == contents(wheel_in(dist))


@pytest.mark.slow
def test_the_sdist_holds_all_that_a_check_of_its_kernels_reads(
    dist: Path, tmp_path: Path
) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    extract(sdist, tmp_path)
    (source,) = tmp_path.iterdir()
    done = subprocess.run(
        [sys.executable, "-m", "gemmgen.cli.main", "build", "--check", "spec.yaml"],
        cwd=source,
        env=os.environ | {"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_installed_wheel_builds_what_the_checkout_builds(
    python: Path, tmp_path: Path
) -> None:
    (tmp_path / "spec.yaml").write_bytes(SPEC.read_bytes())
    shutil.copytree(SPEC.parent / "tuning", tmp_path / "tuning")
    gemmgen_command = str(python.with_name("gemmgen"))
    for name in HEAVY:
        found = f"import importlib.util; print(importlib.util.find_spec('{name}'))"
        assert run(python, "-c", found, cwd=tmp_path) == "None\n"
    run(python, gemmgen_command, "build", "spec.yaml", cwd=tmp_path)
    folder = tmp_path / "generated"
    files = [path for path in folder.rglob("*") if path.is_file()]
    made = {path.relative_to(folder).as_posix(): path.read_text() for path in files}
    wanted = gemmgen.outputs([SPEC])
    assert made.keys() == wanted.keys()
    # The lock file names the generator's digest: equal too, the sources being equal.
    assert made == wanted
    run(python, gemmgen_command, "build", "--check", "spec.yaml", cwd=tmp_path)


def test_installed_wheel_is_typed_and_starts_a_project(
    python: Path, tmp_path: Path
) -> None:
    where = run(python, "-c", "import gemmgen; print(gemmgen.__file__)", cwd=tmp_path)
    assert (Path(where.strip()).parent / "py.typed").is_file()
    run(python, "-m", "gemmgen.cli.main", "init", cwd=tmp_path)
    out = run(python, "-m", "gemmgen.cli.main", "build", "spec.yaml", cwd=tmp_path)
    assert out.endswith("unchanged\n")


def test_checkout_reads_its_own_templates() -> None:
    """As an editable install does: templates are edited and used in one place."""
    assert version.template_root() == ROOT / "templates"


COMMANDS = (
    *("--help", "--version", "build {spec}", "build --check {spec}"),
    *("list {spec}", "show {spec} first", "schema", "init new.yaml"),
)


@pytest.mark.parametrize(
    "command", all_but({*COMMANDS} - {"build --check {spec}"}, COMMANDS)
)
def test_no_command_but_verify_imports_torch(command: str, tmp_path: Path) -> None:
    """Nor do its workers: the poisoned modules end any process that imports them."""
    poison = tmp_path / "poison"
    poison.mkdir()
    for name in HEAVY:
        note = tmp_path / f"{name} was imported"
        (poison / f"{name}.py").write_text(
            f"open({str(note)!r}, 'w')\nraise SystemExit(9)"
        )
    (tmp_path / "spec.yaml").write_text(QUICK)
    paths = os.pathsep.join([str(poison), str(ROOT)])
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "gemmgen.cli.main",
            *command.format(spec="spec.yaml").split(),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
    )
    assert done.returncode == ("--check" in command), done.stderr
    assert list(tmp_path.glob("* was imported")) == []


def test_help_and_import_are_light() -> None:
    """`--help` reads no YAML and loads no template engine, formatter or data model."""
    code = (
        "import sys, gemmgen\n"
        "from gemmgen.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print('loaded:', *sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.partition("loaded:")[2].split())
    slow = {"black", "jinja2", "pydantic", "rich", "yaml", *HEAVY}
    assert loaded & slow == set()
