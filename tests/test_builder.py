import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from gemmgen.base.errors import Location, SpecError, SpecErrors, UsageError
from gemmgen.base.header import entry_hash, head, read, seal
from gemmgen.epilogue.checked import Epilogue, Statement
from gemmgen.epilogue.expression import Name
from gemmgen.output.builder import Report, build, check, outputs
from gemmgen.output.changes import Refused, State
from gemmgen.output.folder import LOCK, PACKAGE, SHARED
from gemmgen.output.job import source_name
from gemmgen.render.names.parts import header_name

IDENTITY = Epilogue((Statement("c", Name("acc"), ("m", "n")),), (), ("acc",))


@dataclass(frozen=True)
class FakePlan:
    name: str
    value: int
    schedules: tuple[str, ...] = ("tiled",)
    rows: tuple[()] = ()
    epilogue: Epilogue = IDENTITY
    backward: None = None
    module: bool = False

    @property
    def folder(self) -> str:
        return self.name


def fake_load(path: Path) -> tuple[FakePlan, ...]:
    """A spec is a JSON object: the kernels with the number that each holds.

    Or with a list of that number and of the schedules, where others are wanted.
    """
    try:
        return tuple(
            (
                FakePlan(name, value[0], tuple(value[1:]))
                if isinstance(value, list)
                else FakePlan(name, value)
            )
            for name, value in json.loads(path.read_bytes()).items()
        )
    except ValueError:
        raise SpecErrors([SpecError(Location(str(path), 1, 1), "no JSON")]) from None


def fake_fingerprint(plan: FakePlan) -> str:
    return entry_hash(asdict(plan))


ROLES = "from .._runtime.pipeline.roles import specialize\n"
"""What a kernel takes from a package of what kernels share."""


class Generator:
    """A stand-in for the renderer, which counts; `style` stands for its templates.

    And `loop` for what only that of the schedules has.
    """

    def __init__(self) -> None:
        self.style, self.loop = "X", ""
        self.rendered: list[str] = []

    def digest(self) -> str:
        return f"digest of {self.style}{self.loop}"

    def files(self, plan: FakePlan, source: str) -> dict[str, str]:
        """A launcher, and a file for each schedule of the plan."""
        self.rendered.append(plan.name)
        beside = "".join(f"from .{one} import SCHEDULE\n" for one in plan.schedules)
        own = {f"{plan.name}/__init__.py": beside}
        for schedule in plan.schedules:
            roles = ROLES if schedule == "warp_specialized" else ""
            own[f"{plan.name}/{schedule}.py"] = roles + self.loop
        entry = fake_fingerprint(plan)
        return {
            file: seal(
                head(source, header_name(file), entry)
                + f"{self.style} = {plan.value}\n{loop}"
            )
            for file, loop in own.items()
        }

    def package(self, names: Sequence[str], layers: Sequence[str]) -> str:
        assert not layers
        self.rendered.append("__init__")
        top = head(None, "__init__", entry_hash(list(names)))
        return seal(f"{top}# {self.style}\n__all__ = {list(names)}\n")

    def shared(self, file: str) -> str:
        name = file.removesuffix(".py")
        self.rendered.append(name)
        return seal(
            head(None, header_name(file), entry_hash(name)) + f"# {self.style}\n"
        )

    def taken(self) -> list[str]:
        """What was rendered since the last call, sorted."""
        names, self.rendered = sorted(self.rendered), []
        return names


@pytest.fixture(autouse=True)
def generator(monkeypatch: pytest.MonkeyPatch) -> Generator:
    made = Generator()
    monkeypatch.setattr("gemmgen.select.plan.load", fake_load)
    monkeypatch.setattr("gemmgen.render.origin.fingerprint", fake_fingerprint)
    monkeypatch.setattr("gemmgen.base.version.digest", made.digest)
    for name in ("files", "package", "shared"):
        monkeypatch.setattr(f"gemmgen.render.render.{name}", getattr(made, name))
    return made


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with a spec of two kernels."""
    monkeypatch.chdir(tmp_path)
    write(SPEC, a=1, b=2)
    yield tmp_path


SPEC, OTHER, OUT = Path("spec.yaml"), Path("other.yaml"), Path("generated")


def write(spec: Path, **kernels: int | list[int | str]) -> Path:
    spec.parent.mkdir(parents=True, exist_ok=True)
    spec.write_text(json.dumps(kernels))
    return spec


def drift(report: Report) -> dict[str, State]:
    return {change.name: change.state for change in report.drift}


def places(report: Report) -> dict[str, State]:
    return {change.name: change.state for change in report.places}


def text(name: str) -> str:
    return (OUT / name).read_text()


def edit(*names: str) -> None:
    for name in names:
        (OUT / name).write_text(text(name) + "# mine\n")


def of(*kernels: str) -> list[str]:
    """The files of kernels of one schedule, in the order given."""
    return [f"{name}/{stem}.py" for name in kernels for stem in ("__init__", "tiled")]


def former(kernel: str, value: int, spec: Path = SPEC) -> Path:
    """A kernel's one file, as an earlier gemmgen wrote it."""
    OUT.mkdir(exist_ok=True)
    entry = fake_fingerprint(FakePlan(kernel, value))
    top = head(str(spec), kernel, entry)
    path = OUT / f"{kernel}.py"
    path.write_text(seal(f"{top}W = {value}\n"))
    return path


def rendered_with(name: str) -> str:
    """What `Generator.taken` tells when a file is rendered."""
    return name.partition("/")[0] if name in of("a") else name.removesuffix(".py")


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


def refusal(spec: Path) -> str:
    """What a build says that writes nothing."""
    with pytest.raises(Refused) as error:
        build([spec])
    return str(error.value)


def touched(before: dict[str, tuple[int, int]]) -> set[str]:
    """The files that were written since `before` was taken."""
    return {name for name, stamp in stamps().items() if stamp != before.get(name)}


def stamps() -> dict[str, tuple[int, int]]:
    every = {name: path.stat() for name, path in files().items()}
    return {name: (one.st_mtime_ns, one.st_ino) for name, one in every.items()}


TAKEN = "comes from 'spec.yaml'; rename a kernel, or --force takes it"
COMMON = sorted(name for name in SHARED if name.count("/") == 1)
ALL = [PACKAGE, *COMMON, *of("a", "b"), LOCK]
EVERY_TEXT = ["__init__", *(name.removesuffix(".py") for name in COMMON), "a", "b"]
"""What `Generator.taken` tells of a full render: a kernel's files come at once."""

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
        assert found == [PACKAGE, *COMMON, *of("a", "b", "c"), LOCK]

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
        assert set(drift(build([SPEC]))) == {*of("b"), LOCK}
        assert generator.taken() == ["b"]
        assert touched(before) == {*of("b"), LOCK}
        assert all("X = 3" in text(name) for name in of("b"))

    def test_a_file_whose_text_stays_is_not_touched(self, generator: Generator) -> None:
        build([SPEC])
        before = stamps()
        generator.taken()
        generator.loop = "# faster\n"
        changed = {"a/tiled.py", "b/tiled.py", LOCK}
        assert set(drift(check([SPEC]))) == changed
        assert drift(build([SPEC])) == dict.fromkeys(changed, State.OUTDATED)
        assert touched(before) == changed
        assert build([SPEC]).clean

    def test_a_schedule_that_comes_and_goes(self, generator: Generator) -> None:
        build([SPEC])
        generator.taken()
        write(SPEC, a=[1, "tiled", "split"], b=2)
        both = dict.fromkeys([*of("a"), LOCK], State.OUTDATED)
        assert drift(build([SPEC])) == {**both, "a/split.py": State.MISSING}
        assert rows()["a/split.py"]["source"] == "spec.yaml"
        write(SPEC, a=1, b=2)
        assert drift(build([SPEC])) == {**both, "a/split.py": State.LEFTOVER}
        assert generator.taken() == ["a", "a"]
        assert sorted(files()) == ALL and sorted(rows()) == sorted(ALL[:-1])

    def test_a_kernel_that_is_gone_is_removed(self) -> None:
        build([SPEC])
        write(SPEC, a=1)
        assert drift(build([SPEC])) == {
            PACKAGE: State.OUTDATED,
            **dict.fromkeys(of("b"), State.LEFTOVER),
            LOCK: State.OUTDATED,
        }
        assert sorted(files()) == [PACKAGE, *COMMON, *of("a"), LOCK]
        assert not (OUT / "b").exists()
        assert "__all__ = ['a']" in text(PACKAGE)
        assert sorted(rows()) == [PACKAGE, *COMMON, *of("a")]

    def test_its_folder_stays_for_what_somebody_put_there(self) -> None:
        build([SPEC])
        (OUT / "b" / "mine.py").write_text("mine = 1\n")
        write(SPEC, a=1)
        build([SPEC])
        mine = [PACKAGE, *COMMON, *of("a"), "b/mine.py", LOCK]
        assert sorted(files()) == mine
        assert check([SPEC]).clean

    @pytest.mark.parametrize("name", of("b"))
    def test_an_edited_file_of_a_kernel_that_is_gone_stops_it(self, name: str) -> None:
        build([SPEC])
        edit(name)
        write(SPEC, a=1)
        before = stamps()
        reason = "edited by hand, and no spec asks for it; --force removes it"
        assert refusal(SPEC) == f"'generated/{name}': {reason}"
        assert stamps() == before
        build([SPEC], force=True)
        assert not (OUT / "b").exists()

    @pytest.mark.parametrize("name", of("a"))
    def test_an_edited_file_stops_it(self, name: str) -> None:
        build([SPEC])
        edit(name)
        write(SPEC, a=5, b=5)
        before = stamps()
        reason = "edited by hand; --force overwrites it"
        assert refusal(SPEC) == f"'generated/{name}': {reason}"
        assert stamps() == before
        build([SPEC], force=True)
        assert check([SPEC]).clean

    def test_an_edit_is_noticed_where_nothing_else_changed(self) -> None:
        for name in (PACKAGE, *COMMON, *of("a")):
            build([SPEC], force=True)
            edit(name)
            assert drift(check([SPEC])) == {name: State.EDITED}
            with pytest.raises(Refused, match=name):
                build([SPEC])

    def test_on_done_hears_of_each_rendered_kernel(self) -> None:
        done: list[str] = []
        build([SPEC], on_done=done.append)
        assert done == ["a", "b"]
        build([SPEC], on_done=done.append)
        assert len(done) == 2
        check([SPEC], on_done=done.append)
        assert len(done) == 4

    def test_a_spec_given_twice_counts_once(self) -> None:
        build([SPEC, Path("../") / Path.cwd().name / SPEC])
        assert check([SPEC]).clean


class TestFormerLayout:
    """A kernel's one file of an earlier gemmgen, where it has a folder now."""

    def test_its_files_are_removed(self) -> None:
        old = [former("a", 1), former("b", 2), former("c", 3)]
        found = dict.fromkeys((path.name for path in old), State.LEFTOVER)
        new = dict.fromkeys(ALL, State.MISSING)
        assert drift(check([SPEC])) == {**new, **found}
        assert all(path.exists() for path in old)
        assert drift(build([SPEC])) == {**new, **found}
        assert sorted(files()) == ALL
        assert "__all__ = ['a', 'b']" in text(PACKAGE)
        assert build([SPEC]).clean and check([SPEC]).clean

    def test_one_is_removed_beside_its_folder(self, generator: Generator) -> None:
        build([SPEC])
        before = stamps()
        generator.taken()
        former("a", 1)
        assert drift(build([SPEC])) == {"a.py": State.LEFTOVER}
        assert generator.taken() == []
        assert stamps() == before

    def test_an_edited_one_stops_it(self) -> None:
        former("a", 1)
        edit("a.py")
        reason = "edited by hand, and no spec asks for it; --force removes it"
        assert refusal(SPEC) == f"'generated/a.py': {reason}"
        assert sorted(files()) == ["a.py"]
        build([SPEC], force=True)
        assert sorted(files()) == ALL

    def test_what_gemmgen_did_not_write_stays(self) -> None:
        copy = former("a", 1).rename(OUT / "copy.py")
        mine = OUT / "b.py"
        mine.write_text("mine = 1\n")
        build([SPEC])
        assert copy.exists() and mine.exists()
        assert check([SPEC]).clean

    def test_one_of_another_spec_stays_until_that_is_built(self) -> None:
        former("c", 3, write(OTHER, c=3))
        build([SPEC])
        assert "__all__ = ['a', 'b', 'c']" in text(PACKAGE)
        assert rows()["c.py"]["source"] == "other.yaml"
        build([OTHER])
        assert sorted(files()) == [PACKAGE, *COMMON, *of("a", "b", "c"), LOCK]
        assert "__all__ = ['a', 'b', 'c']" in text(PACKAGE)
        assert check([SPEC, OTHER]).clean

    def test_one_of_another_spec_is_not_hidden_by_a_folder(self) -> None:
        former("b", 3, write(OTHER, b=3))
        assert refusal(SPEC) == f"'generated/b.py': {TAKEN.replace('spec', 'other')}"
        assert sorted(files()) == ["b.py"]
        build([SPEC], force=True)
        assert sorted(files()) == ALL

    def test_one_of_a_renamed_spec_goes_with_it(self) -> None:
        former("b", 3, Path("gone.yaml"))
        assert drift(build([SPEC]))["b.py"] is State.LEFTOVER
        assert sorted(files()) == ALL


class TestTaking:
    """Whoever takes a kernel takes all files of its folder."""

    def test_by_force(self) -> None:
        build([write(OTHER, b=[3, "tiled", "split"], c=1)])
        assert refusal(SPEC) == f"'generated/b': {TAKEN.replace('spec', 'other')}"
        build([SPEC], force=True)
        assert sorted(files()) == [PACKAGE, *COMMON, *of("a", "b", "c"), LOCK]
        assert {rows()[name]["source"] for name in of("b")} == {"spec.yaml"}
        assert check([SPEC]).clean

    def test_by_a_spec_that_was_renamed(self) -> None:
        build([write(OTHER, b=[3, "tiled", "split"])])
        OTHER.unlink()
        build([SPEC])
        assert sorted(files()) == ALL
        assert check([SPEC]).clean

    def test_a_kernel_without_its_launcher_is_not_listed(self) -> None:
        build([SPEC])
        build([write(OTHER, c=3)])
        (OUT / "b/__init__.py").unlink()
        build([OTHER])
        assert "__all__ = ['a', 'c']" in text(PACKAGE)
        build([SPEC])
        assert "__all__ = ['a', 'b', 'c']" in text(PACKAGE)


class TestPlaces:
    """What is said of a folder whose files are all in one state."""

    def test_a_whole_folder_is_one(self) -> None:
        every = [PACKAGE, "_runtime", "a", "b", LOCK]
        assert places(check([SPEC])) == dict.fromkeys(every, State.MISSING)
        build([SPEC])
        assert check([SPEC]).places == ()
        write(SPEC, a=5, c=1)
        report = build([SPEC])
        assert list(places(report).items()) == [
            (PACKAGE, State.OUTDATED),
            ("a", State.OUTDATED),
            ("b", State.LEFTOVER),
            ("c", State.MISSING),
            (LOCK, State.OUTDATED),
        ]
        assert set(drift(report)) == {PACKAGE, *of("a", "b", "c"), LOCK}

    @pytest.mark.parametrize("name", of("a"))
    def test_a_file_among_fresh_ones_is_told(self, name: str) -> None:
        build([SPEC])
        (OUT / name).unlink()
        assert places(check([SPEC])) == {name: State.MISSING}

    def test_files_in_several_states_are_told(self) -> None:
        build([SPEC])
        edit("a/__init__.py", *of("b"))
        (OUT / "a/tiled.py").unlink()
        assert places(check([SPEC])) == {
            "a/__init__.py": State.EDITED,
            "a/tiled.py": State.MISSING,
            "b": State.EDITED,
        }

    def test_one_file_alone_goes_by_its_name(self) -> None:
        build([SPEC])
        (OUT / "b/__init__.py").unlink()
        write(SPEC, a=1)
        assert places(check([SPEC]))["b/tiled.py"] is State.LEFTOVER

    def test_files_beside_the_folders_are_no_folder(self) -> None:
        build([write(SPEC, h=1)])
        former("y", 1)
        former("z", 1)
        found = dict.fromkeys(("y.py", "z.py"), State.LEFTOVER)
        assert places(check([SPEC])) == found

    def test_the_reason_is_that_of_the_files(self) -> None:
        build([SPEC])
        edit(*of("a"))
        report = check([SPEC])
        (place,) = report.places
        assert {change.reason for change in report.drift} == {place.reason}
        assert place.reason == "edited by hand; --force overwrites it"


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
        for kernel, source in (("c", "x/spec.yaml"), ("d", "y/spec.yaml")):
            assert {rows()[name]["source"] for name in of(kernel)} == {source}
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
        write(OTHER, b=1, c=1)
        assert refusal(OTHER) == f"'generated/b': {TAKEN}"
        assert stamps() == before and not (OUT / "c").exists()
        found = drift(check([OTHER]))
        assert {found[name] for name in of("b")} == {State.TAKEN}

    def test_a_file_of_another_spec_is_named_where_others_are_not_there(self) -> None:
        build([SPEC])
        (OUT / "b/tiled.py").unlink()
        before = stamps()
        write(OTHER, b=1)
        assert refusal(OTHER) == f"'generated/b/__init__.py': {TAKEN}"
        assert stamps() == before

    def test_a_kernel_of_another_spec_is_taken_by_force(self) -> None:
        build([SPEC])
        build([write(OTHER, b=1)], force=True)
        assert {rows()[name]["source"] for name in of("b")} == {"other.yaml"}
        assert check([OTHER]).clean
        assert places(check([SPEC])) == {"b": State.TAKEN, LOCK: State.OUTDATED}

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
        assert sorted(files()) == sorted([PACKAGE, *COMMON, LOCK, *of(*names)])
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
        edit("b/tiled.py")
        before = stamps()
        report = check([SPEC])
        assert drift(report) == {
            PACKAGE: State.OUTDATED,
            **dict.fromkeys(of("a"), State.OUTDATED),
            "b/tiled.py": State.EDITED,
            **dict.fromkeys(of("d"), State.LEFTOVER),
            **dict.fromkeys(of("e"), State.MISSING),
            LOCK: State.OUTDATED,
        }
        assert [c.name for c in report.changes] == sorted(
            c.name for c in report.changes
        )
        assert stamps() == before

    @pytest.mark.parametrize("name", of("a"))
    def test_it_trusts_no_shortcut(self, generator: Generator, name: str) -> None:
        """Even a lie that a build would believe: file, header and lock all agree."""
        build([SPEC])
        lie = seal(text(name).replace("X = 1", "X = 666"))
        (OUT / name).write_text(lie)
        found = read(lie)
        assert found and "X = 666" in lie
        (OUT / LOCK).write_text(text(LOCK).replace(rows()[name]["body"], found.body))
        generator.taken()
        assert build([SPEC]).clean
        assert generator.taken() == []
        assert drift(check([SPEC])) == {name: State.OUTDATED, LOCK: State.OUTDATED}
        assert generator.taken() == EVERY_TEXT

    def test_others_than_those_it_is_for_are_not_rendered(
        self, generator: Generator
    ) -> None:
        build([SPEC])
        edit(*of("a", "b"))
        generator.taken()
        found = drift(check([SPEC], only="b"))
        assert found == dict.fromkeys(of("b"), State.EDITED)
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

    @pytest.mark.parametrize("harm", ["missing", "conflict", *of("a")])
    def test_a_harmed_lock_is_drift_of_the_lock_alone(self, harm: str) -> None:
        build([SPEC])
        whole = text(LOCK)
        if harm == "missing":
            (OUT / LOCK).unlink()
        elif harm == "conflict":
            (OUT / LOCK).write_text(f"<<<<<<< HEAD\n{whole}=======\n{whole}>>>>>>> x\n")
        else:
            (OUT / LOCK).write_text(whole.replace(f'"{harm}"', '"z.py"'))
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
        assert all("Y = 1" in text(name) for name in of("a"))

    def test_another_specs_build_vouches_for_no_file_of_an_older_generator(
        self, generator: Generator
    ) -> None:
        write(OTHER, c=3)
        build([SPEC])
        generator.style = "Y"
        build([OTHER])
        assert all(rows()[name]["generator"] == "digest of X" for name in of("a"))
        assert all("generator" not in rows()[name] for name in of("c"))
        assert check([OTHER]).clean
        assert set(drift(build([SPEC]))) == {*of("a", "b"), LOCK}
        assert all("Y = 1" in text(name) for name in of("a"))
        assert all("generator" not in rows()[name] for name in of("a"))

    def test_a_file_without_a_row_is_vouched_for_by_nobody(
        self, generator: Generator
    ) -> None:
        build([SPEC])
        (OUT / LOCK).unlink()
        build([write(OTHER, c=3)])
        assert {rows()[name]["generator"] for name in of("a", "b")} == {""}
        generator.taken()
        build([SPEC])
        assert generator.taken() == ["a", "b"]

    @pytest.mark.parametrize("name", of("a"))
    def test_one_row_that_is_missing_is_enough(
        self, generator: Generator, name: str
    ) -> None:
        build([SPEC])
        lines = text(LOCK).splitlines(keepends=True)
        (OUT / LOCK).write_text("".join(line for line in lines if name not in line))
        assert name not in rows() and len(rows()) == len(ALL) - 2
        generator.taken()
        assert drift(build([SPEC])) == {LOCK: State.OUTDATED}
        # Without its launcher's row the lock does not list the kernel either.
        package = ["__init__"] if name == "a/__init__.py" else []
        assert generator.taken() == [*package, "a"]

    @pytest.mark.parametrize("name", [PACKAGE, *COMMON, *of("a")])
    def test_a_file_that_was_removed_is_rendered(
        self, generator: Generator, name: str
    ) -> None:
        build([SPEC])
        before = stamps()
        (OUT / name).unlink()
        generator.taken()
        assert drift(build([SPEC])) == {name: State.MISSING}
        assert generator.taken() == [rendered_with(name)]
        assert touched(before) == {name}

    @pytest.mark.parametrize("name", [PACKAGE, *COMMON, *of("a")])
    def test_a_file_that_was_edited_is_rendered(
        self, generator: Generator, name: str
    ) -> None:
        build([SPEC])
        whole = text(name)
        edit(name)
        before = stamps()
        generator.taken()
        assert drift(build([SPEC], force=True)) == {name: State.EDITED}
        assert generator.taken() == [rendered_with(name)]
        assert touched(before) == {name}
        assert text(name) == whole

    def test_a_folder_that_was_removed_is_rendered(self, generator: Generator) -> None:
        build([SPEC])
        before = stamps()
        shutil.rmtree(OUT / "a")
        generator.taken()
        assert drift(build([SPEC])) == dict.fromkeys(of("a"), State.MISSING)
        assert generator.taken() == ["a"]
        assert touched(before) == {*of("a")}

    def test_a_kernel_that_moved_to_another_spec_is_rendered(self) -> None:
        build([SPEC])
        write(SPEC, a=1)
        write(OTHER, b=2)
        build([SPEC, OTHER])
        assert {rows()[name]["source"] for name in of("b")} == {"other.yaml"}
        assert check([SPEC, OTHER]).clean


class TestShared:
    """A package of what kernels share is there as long as a kernel imports from it."""

    WITH = sorted(name for name in SHARED if name.startswith("_runtime/pipeline/"))

    def pipeline(self) -> list[str]:
        return [name for name in files() if name in self.WITH]

    def test_it_comes_and_goes_with_a_kernel(self) -> None:
        build([SPEC])
        assert self.pipeline() == []
        write(SPEC, a=1, b=[2, "warp_specialized"])
        assert set(self.WITH) < set(drift(check([SPEC])))
        build([SPEC])
        assert self.pipeline() == self.WITH and check([SPEC]).clean
        write(SPEC, a=1, b=2)
        found = drift(build([SPEC]))
        assert {found[name] for name in self.WITH} == {State.LEFTOVER}
        assert self.pipeline() == [] and check([SPEC]).clean

    def test_it_stays_for_kernels_of_another_spec(self) -> None:
        build([write(OTHER, c=[3, "warp_specialized"])])
        build([SPEC])
        assert self.pipeline() == self.WITH
        assert check([SPEC]).clean and check([OTHER]).clean
        write(OTHER)
        build([OTHER])
        assert self.pipeline() == [] and check([SPEC]).clean

    def test_an_edited_file_that_nobody_needs_stops_it(self) -> None:
        build([write(SPEC, a=[1, "warp_specialized"])])
        edit(self.WITH[-1])
        write(SPEC, a=1)
        assert "no spec asks for it" in refusal(SPEC)
        build([SPEC], force=True)
        assert self.pipeline() == []


class TestLock:
    def test_its_form(self) -> None:
        build([SPEC])
        top, *_, last = text(LOCK).splitlines()
        assert (top, last) == ("{", "}") and text(LOCK).endswith("}\n")
        assert list(lock()) == ["gemmgen", "black", "generator", "files"]
        assert lock()["black"] == "26"
        listed = [line for line in text(LOCK).splitlines() if '"file": ' in line]
        names = [json.loads(line.rstrip(","))["file"] for line in listed]
        assert names == sorted(names) == [PACKAGE, *COMMON, *of("a", "b")]
        for name in of("a"):
            found = read(text(name))
            assert found and rows()[name] == {
                "file": name,
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

    @pytest.mark.slow
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
