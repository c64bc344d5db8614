import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from gemmgen.base.errors import Location, SpecError, SpecErrors, UsageError
from gemmgen.base.header import entry_hash, head, read, seal
from gemmgen.output.builder import Report, build, check, outputs, source_name
from gemmgen.output.folder import LOCK, PACKAGE, SHARED, Refused, State


@dataclass(frozen=True)
class FakePlan:
    name: str
    value: int


def fake_load(path: Path) -> tuple[FakePlan, ...]:
    """A spec is a JSON object: the kernels with the number that each holds."""
    try:
        return tuple(FakePlan(*item) for item in json.loads(path.read_bytes()).items())
    except ValueError:
        raise SpecErrors([SpecError(Location(str(path), 1, 1), "no JSON")]) from None


def fake_fingerprint(plan: FakePlan) -> str:
    return entry_hash(asdict(plan))


class Generator:
    """A stand-in for the renderer, which counts; `style` stands for its templates."""

    def __init__(self) -> None:
        self.style = "X"
        self.rendered: list[str] = []

    def digest(self) -> str:
        return f"digest of {self.style}"

    def module(self, plan: FakePlan, source: str) -> str:
        self.rendered.append(plan.name)
        top = head(source, fake_fingerprint(plan), [f"name: {plan.name}"])
        return seal(f"{top}{self.style} = {plan.value}\n")

    def package(self, names: Sequence[str]) -> str:
        self.rendered.append("__init__")
        top = head(None, entry_hash(list(names)), ["name: __init__"])
        return seal(f"{top}# {self.style}\n__all__ = {list(names)}\n")

    def shared(self, file: str) -> str:
        name = file.removesuffix(".py")
        self.rendered.append(name)
        return seal(head(None, entry_hash(name), []) + f"# {self.style}\n")

    def taken(self) -> list[str]:
        """What was rendered since the last call, sorted."""
        names, self.rendered = sorted(self.rendered), []
        return names


@pytest.fixture(autouse=True)
def generator(monkeypatch: pytest.MonkeyPatch) -> Generator:
    made = Generator()
    monkeypatch.setattr("gemmgen.select.plan.load", fake_load)
    monkeypatch.setattr("gemmgen.select.plan.fingerprint", fake_fingerprint)
    monkeypatch.setattr("gemmgen.base.version.digest", made.digest)
    for name in ("module", "package", "shared"):
        monkeypatch.setattr(f"gemmgen.render.render.{name}", getattr(made, name))
    return made


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with a spec of two kernels."""
    monkeypatch.chdir(tmp_path)
    write(SPEC, a=1, b=2)
    yield tmp_path


SPEC, OTHER, OUT = Path("spec.yaml"), Path("other.yaml"), Path("generated")


def write(spec: Path, **kernels: int) -> Path:
    spec.parent.mkdir(parents=True, exist_ok=True)
    spec.write_text(json.dumps(kernels))
    return spec


def drift(report: Report) -> dict[str, State]:
    return {change.name: change.state for change in report.drift}


def text(name: str) -> str:
    return (OUT / name).read_text()


def lock() -> dict[str, object]:
    found = json.loads(text(LOCK))
    assert isinstance(found, dict)
    return found


def rows() -> dict[str, dict[str, str]]:
    files = lock()["files"]
    assert isinstance(files, list)
    return {row["file"]: row for row in files}


def files(folder: Path = OUT) -> dict[str, Path]:
    """Every file of a folder, and of the folders in it, by name."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in paths}


def stamps() -> dict[str, tuple[int, int]]:
    every = {name: path.stat() for name, path in files().items()}
    return {name: (one.st_mtime_ns, one.st_ino) for name, one in every.items()}


COMMON = sorted(SHARED)
ALL = [PACKAGE, *COMMON, "a.py", "b.py", LOCK]
EVERY_TEXT = ["__init__", *(name.removesuffix(".py") for name in COMMON), "a", "b"]

pytestmark = pytest.mark.usefixtures("home")


class TestBuild:
    def test_it_writes_every_file(self) -> None:
        report = build([SPEC])
        assert drift(report) == dict.fromkeys(ALL, State.MISSING)
        assert sorted(files()) == ALL
        assert "__all__ = ['a', 'b']" in text(PACKAGE)
        assert report.folder == OUT and not report.clean

    def test_the_folder_is_beside_the_first_spec(self) -> None:
        build([write(Path("x/one.yaml"), c=1), SPEC])
        found = sorted(files(Path("x/generated")))
        assert found == [PACKAGE, *COMMON, "a.py", "b.py", "c.py", LOCK]

    def test_the_same_again_renders_and_touches_nothing(
        self, generator: Generator
    ) -> None:
        build([SPEC])
        before = stamps()
        assert generator.taken() == EVERY_TEXT
        assert build([SPEC]).clean
        assert generator.taken() == []
        assert stamps() == before

    def test_a_changed_kernel_alone_is_rendered(self, generator: Generator) -> None:
        build([SPEC])
        before = stamps()
        generator.taken()
        write(SPEC, a=1, b=3)
        assert set(drift(build([SPEC]))) == {"b.py", LOCK}
        assert generator.taken() == ["b"]
        assert {n for n, s in stamps().items() if s != before[n]} == {"b.py", LOCK}

    def test_a_kernel_that_is_gone_is_removed(self) -> None:
        build([SPEC])
        write(SPEC, a=1)
        assert drift(build([SPEC]))["b.py"] is State.LEFTOVER
        assert sorted(files()) == [PACKAGE, *COMMON, "a.py", LOCK]
        assert "__all__ = ['a']" in text(PACKAGE)
        assert sorted(rows()) == [PACKAGE, *COMMON, "a.py"]

    def test_an_edited_file_stops_it(self) -> None:
        build([SPEC])
        (OUT / "a.py").write_text(text("a.py") + "# mine\n")
        write(SPEC, a=5, b=5)
        before = stamps()
        with pytest.raises(Refused, match=r"'generated/a\.py': edited by hand"):
            build([SPEC])
        assert stamps() == before
        build([SPEC], force=True)
        assert check([SPEC]).clean

    def test_an_edit_is_noticed_where_nothing_else_changed(self) -> None:
        for name in (PACKAGE, *COMMON, "a.py"):
            build([SPEC], force=True)
            (OUT / name).write_text(text(name) + "# mine\n")
            assert drift(check([SPEC])) == {name: State.EDITED}
            with pytest.raises(Refused, match=name):
                build([SPEC])

    def test_on_done_hears_of_each_rendered_module(self) -> None:
        done: list[str] = []
        build([SPEC], on_done=done.append)
        assert done == ["a.py", "b.py"]
        build([SPEC], on_done=done.append)
        assert len(done) == 2
        check([SPEC], on_done=done.append)
        assert len(done) == 4

    def test_a_spec_given_twice_counts_once(self) -> None:
        build([SPEC, Path("../") / Path.cwd().name / SPEC])
        assert check([SPEC]).clean


class TestSeveralSpecs:
    def test_files_of_other_specs_stay(self, generator: Generator) -> None:
        build([SPEC])
        build([write(OTHER, c=3)])
        assert "__all__ = ['a', 'b', 'c']" in text(PACKAGE)
        assert check([SPEC]).clean and check([OTHER]).clean
        generator.taken()
        assert build([SPEC]).clean and build([OTHER]).clean
        assert generator.taken() == []

    def test_together_or_one_by_one_is_the_same(self) -> None:
        build([SPEC])
        build([write(OTHER, c=3)])
        one_by_one = {name: path.read_bytes() for name, path in files().items()}
        build([OTHER, SPEC], Path("together"))
        together = files(Path("together")).items()
        assert {name: path.read_bytes() for name, path in together} == one_by_one

    def test_the_last_kernel_of_a_spec_leaves_the_others(self) -> None:
        build([SPEC])
        build([write(OTHER, c=3)])
        write(SPEC)
        build([SPEC])
        assert "__all__ = ['c']" in text(PACKAGE)
        assert check([OTHER]).clean

    def test_the_same_name_in_two_folders_is_told_apart(self) -> None:
        one, two = write(Path("x/spec.yaml"), c=1), write(Path("y/spec.yaml"), d=1)
        build([one], OUT)
        build([two], OUT)
        assert {rows()[name]["source"] for name in ("c.py", "d.py")} == {
            "x/spec.yaml",
            "y/spec.yaml",
        }
        assert check([one], OUT).clean

    def test_a_spec_is_named_from_beside_the_folder(self) -> None:
        one = write(Path("x/y/spec.yaml"), c=1)
        assert source_name(one) == "spec.yaml"
        assert source_name(one, OUT) == source_name(one.resolve(), OUT) == str(one)
        assert source_name(one, Path("x/y/deep/generated")) == "spec.yaml"

    def test_no_path_of_this_machine_enters_a_file(self, tmp_path: Path) -> None:
        build([SPEC.resolve()], tmp_path / "deep" / "er" / "generated")
        for path in files(tmp_path / "deep/er/generated").values():
            assert str(tmp_path) not in path.read_text()

    def test_the_way_to_the_spec_does_not_matter(self, tmp_path: Path) -> None:
        build([SPEC])
        Path("link").symlink_to(tmp_path)
        for spec in (SPEC.resolve(), Path("link/spec.yaml"), Path("./spec.yaml")):
            for out in (OUT, OUT.resolve(), Path("link/generated")):
                assert check([spec], out).clean

    def test_two_that_cannot_be_told_apart_are_refused(self) -> None:
        one, two = write(Path("x/spec.yaml"), c=1), write(Path("y/spec.yaml"), d=1)
        with pytest.raises(UsageError, match=r"two specs are named 'spec\.yaml'"):
            build([one, two], Path("z/generated"))
        assert not Path("z").exists()

    def test_a_name_in_two_specs_is_refused(self) -> None:
        write(OTHER, b=1)
        with pytest.raises(UsageError) as error:
            build([SPEC, OTHER])
        assert str(error.value) == (
            "kernel 'b' of 'other.yaml' has a name that 'spec.yaml' uses already"
        )
        assert not OUT.exists()

    def test_a_name_of_another_specs_file_is_refused(self) -> None:
        build([SPEC])
        before = stamps()
        with pytest.raises(Refused, match=r"b\.py': comes from 'spec\.yaml'"):
            build([write(OTHER, b=1, c=1)])
        assert stamps() == before
        assert drift(check([OTHER]))["b.py"] is State.TAKEN

    @pytest.mark.parametrize("name", ["_runtime", "__init__"])
    def test_a_name_of_gemmgens_own_is_refused(self, name: str) -> None:
        with pytest.raises(UsageError, match="'gemmgen' uses already"):
            build([write(OTHER, **{name: 1})])

    def test_builders_at_once_end_with_all_kernels(self) -> None:
        specs = [
            write(Path(f"s{i}.yaml"), **{f"k{i}_{j}": j for j in range(5)})
            for i in range(6)
        ]
        children = []
        for spec in specs:
            child = os.fork()
            if not child:
                try:
                    build([spec])
                    os._exit(0)
                finally:
                    os._exit(1)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 6
        names = [f"k{i}_{j}" for i in range(6) for j in range(5)]
        assert f"__all__ = {names}" in text(PACKAGE)
        assert sorted(files()) == sorted(
            [PACKAGE, *COMMON, LOCK, *(f"{name}.py" for name in names)]
        )
        assert check(specs).clean and all(check([spec]).clean for spec in specs)


class TestErrors:
    def test_mistakes_of_all_specs_come_at_once(self) -> None:
        for spec in (SPEC, OTHER):
            spec.write_text("?")
        for act in (build, check, outputs):
            with pytest.raises(SpecErrors) as errors:
                act([SPEC, OTHER])
            assert (
                str(errors.value) == "other.yaml:1:1: no JSON\nspec.yaml:1:1: no JSON"
            )
        assert not OUT.exists()

    def test_a_spec_that_cannot_be_read(self) -> None:
        with pytest.raises(UsageError) as error:
            build([Path("missing.yaml")])
        assert str(error.value) == (
            "cannot read 'missing.yaml': no such file or directory"
        )

    def test_no_spec_at_all(self) -> None:
        with pytest.raises(UsageError, match="no spec is given"):
            build([])


class TestCheck:
    def test_it_writes_nothing(self) -> None:
        assert drift(check([SPEC])) == dict.fromkeys(ALL, State.MISSING)
        assert not OUT.exists()

    def test_it_reports_every_state(self) -> None:
        write(SPEC, a=1, b=2, c=3, d=4)
        build([SPEC])
        write(SPEC, a=5, b=2, c=3, e=5)
        (OUT / "b.py").write_text(text("b.py") + "# mine\n")
        before = stamps()
        report = check([SPEC])
        assert drift(report) == {
            PACKAGE: State.OUTDATED,
            "a.py": State.OUTDATED,
            "b.py": State.EDITED,
            "d.py": State.LEFTOVER,
            "e.py": State.MISSING,
            LOCK: State.OUTDATED,
        }
        assert [c.name for c in report.changes] == sorted(
            c.name for c in report.changes
        )
        assert stamps() == before

    def test_it_trusts_no_shortcut(self, generator: Generator) -> None:
        """Even a lie that a build would believe: file, header and lock all agree."""
        build([SPEC])
        lie = seal(text("a.py").replace("X = 1", "X = 666"))
        (OUT / "a.py").write_text(lie)
        found = read(lie)
        assert found
        (OUT / LOCK).write_text(text(LOCK).replace(rows()["a.py"]["body"], found.body))
        generator.taken()
        assert build([SPEC]).clean
        assert drift(check([SPEC])) == {"a.py": State.OUTDATED, LOCK: State.OUTDATED}
        assert generator.taken() == EVERY_TEXT

    def test_others_than_those_it_is_for_are_not_rendered(
        self, generator: Generator
    ) -> None:
        build([SPEC])
        for name in ("a.py", "b.py"):
            (OUT / name).write_text(text(name) + "# mine\n")
        generator.taken()
        assert drift(check([SPEC], only="b")) == {"b.py": State.EDITED}
        assert generator.taken() == [name for name in EVERY_TEXT if name != "a"]

    def test_another_generator_with_the_same_output_is_no_drift(
        self, generator: Generator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        build([SPEC])
        monkeypatch.setattr("gemmgen.base.version.digest", lambda: "refactored")
        monkeypatch.setattr("gemmgen.output.lockfile.VERSION", "99")
        monkeypatch.setattr("gemmgen.output.lockfile.black_style", lambda: "99")
        assert check([SPEC]).clean
        assert drift(build([SPEC])) == {LOCK: State.OUTDATED}
        assert (lock()["gemmgen"], lock()["black"]) == ("99", "99")

    @pytest.mark.parametrize("harm", ["missing", "conflict", "row"])
    def test_a_harmed_lock_is_drift_of_the_lock_alone(self, harm: str) -> None:
        build([SPEC])
        whole = text(LOCK)
        if harm == "missing":
            (OUT / LOCK).unlink()
        elif harm == "conflict":
            (OUT / LOCK).write_text(f"<<<<<<< HEAD\n{whole}=======\n{whole}>>>>>>> x\n")
        else:
            (OUT / LOCK).write_text(whole.replace('"a.py"', '"z.py"'))
        state = State.MISSING if harm == "missing" else State.OUTDATED
        assert drift(check([SPEC])) == {LOCK: state}
        assert drift(build([SPEC])) == {LOCK: state}
        assert text(LOCK) == whole


class TestShortcut:
    @pytest.mark.parametrize(
        "corrupt",
        [
            "",
            "null",
            "[]",
            "{}",
            "<<<<<<< HEAD",
            "[" * 100_000,
            '{"gemmgen": "1", "black": "1", "generator": "digest of X", "files": 7}',
            '{"gemmgen": "1", "black": "1", "generator": "digest of X", "files": [7]}',
            '{"gemmgen": "1", "black": "1", "generator": "digest of X", "files": [{}]}',
            '{"gemmgen": "1", "black": "1", "generator": 1, "files": []}',
            "\udcff",
        ],
    )
    def test_a_corrupt_lock_means_a_full_render(
        self, generator: Generator, corrupt: str
    ) -> None:
        build([SPEC])
        whole = text(LOCK)
        (OUT / LOCK).write_bytes(corrupt.encode("utf-8", "surrogateescape"))
        generator.taken()
        assert drift(build([SPEC])) == {LOCK: State.OUTDATED}
        assert generator.taken() == EVERY_TEXT
        assert text(LOCK) == whole

    def test_another_generator_means_a_full_render(self, generator: Generator) -> None:
        build([SPEC])
        generator.taken()
        generator.style = "Y"
        assert set(drift(build([SPEC])).values()) == {State.OUTDATED}
        assert generator.taken() == EVERY_TEXT
        assert "Y = 1" in text("a.py")

    def test_another_specs_build_vouches_for_no_file_of_an_older_generator(
        self, generator: Generator
    ) -> None:
        write(OTHER, c=3)
        build([SPEC])
        generator.style = "Y"
        build([OTHER])
        assert rows()["a.py"]["generator"] == "digest of X"
        assert "generator" not in rows()["c.py"]
        assert check([OTHER]).clean
        assert set(drift(build([SPEC]))) == {"a.py", "b.py", LOCK}
        assert "Y = 1" in text("a.py")
        assert "generator" not in rows()["a.py"]

    def test_a_file_without_a_row_is_vouched_for_by_nobody(
        self, generator: Generator
    ) -> None:
        build([SPEC])
        (OUT / LOCK).unlink()
        build([write(OTHER, c=3)])
        assert rows()["a.py"]["generator"] == ""
        generator.taken()
        build([SPEC])
        assert generator.taken() == ["a", "b"]

    @pytest.mark.parametrize("name", [PACKAGE, *COMMON, "a.py"])
    def test_a_file_that_was_removed_is_rendered(
        self, generator: Generator, name: str
    ) -> None:
        build([SPEC])
        (OUT / name).unlink()
        generator.taken()
        assert drift(build([SPEC])) == {name: State.MISSING}
        assert generator.taken() == [name.removesuffix(".py")]

    def test_a_kernel_that_moved_to_another_spec_is_rendered(self) -> None:
        build([SPEC])
        write(SPEC, a=1)
        write(OTHER, b=2)
        build([SPEC, OTHER])
        assert rows()["b.py"]["source"] == "other.yaml"
        assert check([SPEC, OTHER]).clean


class TestLock:
    def test_its_form(self) -> None:
        build([SPEC])
        top, *_, last = text(LOCK).splitlines()
        assert (top, last) == ("{", "}") and text(LOCK).endswith("}\n")
        assert list(lock()) == ["gemmgen", "black", "generator", "files"]
        assert lock()["black"] == "26"
        listed = [line for line in text(LOCK).splitlines() if '"file": ' in line]
        names = [json.loads(line.rstrip(","))["file"] for line in listed]
        assert names == sorted(names) == [PACKAGE, *COMMON, "a.py", "b.py"]
        found = read(text("a.py"))
        assert found and rows()["a.py"] == {
            "file": "a.py",
            "source": "spec.yaml",
            "entry": found.entry,
            "body": found.body,
        }


class TestOutputs:
    def test_they_are_what_an_empty_folder_gets(self) -> None:
        expected = outputs([SPEC])
        assert not OUT.exists()
        build([SPEC])
        assert {name: path.read_text() for name, path in files().items()} == expected
        assert list(expected) == sorted(expected)

    def test_they_do_not_depend_on_the_folder(self) -> None:
        before = outputs([SPEC])
        build([write(OTHER, c=3)])
        assert outputs([SPEC]) == before


REAL = """\
gemmgen: 1
kernels:
  - name: first
    op: gemm
    layout: NN
    dtype: bf16
  - name: second
    op: linear
    dtype: fp16
    epilogue: relu(acc + bias[n])
"""


def python(code: str, **environment: str) -> str:
    """The output of a script in a process of its own, where nothing is faked."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


class TestRealGenerator:
    """The whole way, with nothing faked."""

    act: Callable[[str], str] = staticmethod(
        "import sys; from pathlib import Path\n"
        "from gemmgen.output.builder import build, check\n"
        "print({}([Path('spec.yaml')]).clean, *sorted({{'black', 'jinja2', 'torch',"
        " 'triton'}} & {{*sys.modules}}))".format
    )

    def test_an_unchanged_build_imports_no_renderer(self) -> None:
        SPEC.write_text(REAL)
        assert python(self.act("build")) == "False black jinja2\n"
        assert python(self.act("build")) == "True\n"
        assert python(self.act("check")) == "True black jinja2\n"

    def test_the_same_bytes_everywhere(self) -> None:
        SPEC.write_text(REAL)
        python(self.act("build"), PYTHONHASHSEED="0")
        first = {name: path.read_bytes() for name, path in files().items()}
        deeper = Path("some/where/else")
        deeper.mkdir(parents=True)
        (deeper / SPEC).write_text(REAL)
        os.chdir(deeper)
        before = os.umask(0o077)
        try:
            python(self.act("build"), PYTHONHASHSEED="1", TZ="Asia/Tokyo", LC_ALL="C")
        finally:
            os.umask(before)
        assert {name: path.read_bytes() for name, path in files().items()} == first
