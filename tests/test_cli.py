"""The command line: exit codes, the three formats, what goes where."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import yaml

import gemmgen
from gemmgen.cli import commands, terminal
from gemmgen.cli.main import main
from gemmgen.output.changes import State
from gemmgen.output.folder import SHARED
from tests.slow import all_but

ROOT = Path(__file__).resolve().parent.parent

# With a tile of its own: choosing some takes longer than all the rest.
GOOD = """\
gemmgen: 1
defaults: {tiles: {m: 64, n: 64, k: 64}}
kernels:
  - {name: one, op: linear, dtype: bf16, epilogue: "gelu(acc + bias[n])"}
  - {name: "two_{layout}", for_each: {layout: [NN, TN]}, op: gemm, dtype: fp16}
"""
ONE = ["one/__init__.py", "one/epilogue.py", "one/tiled.py", "one/tiles.py"]
TWO = [file for file in ONE if "epilogue" not in file]
"""The files of its first kernel; the others have the same but for the epilogue."""
COMMON = [one for one in SHARED if one.count("/") == 1 or "/operators/" in one]
FILES = len(COMMON) + 2 + len(ONE) + 2 * len(TWO)
"""What is built of it: what is shared, the package, the lock and three kernels."""
BAD = """\
gemmgen: 1
kernels:
  - {name: one, op: linear, dtype: bf61}
  - {name: two, op: lineal, dtype: bf16}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with a good and a bad spec."""
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text(GOOD)
    Path("bad.yaml").write_text(BAD)
    return tmp_path


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., tuple[int, str, str]]:
    """Run a command in this process: exit code, stdout, stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = main(arguments)
        except SystemExit as leaving:  # argparse
            code = int(leaving.code or 0)
        caught = capsys.readouterr()
        return code, caught.out, caught.err

    return call


Run = Callable[..., tuple[int, str, str]]


def raises(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(options: object) -> int:
        raise error

    monkeypatch.setattr(commands, "build", fail)


def test_build_then_nothing_to_do(run: Run, home: Path) -> None:
    code, out, err = run("build", "good.yaml")
    assert (code, err) == (0, "")
    names = ["__init__.py", "_runtime", "gemmgen.lock.json", "one", "two_nn", "two_tn"]
    *places, last = out.splitlines()
    assert places == [f"generated/{name}: written" for name in names]
    assert last == f"generated: {FILES} written, 0 unchanged"
    folder = home / "generated"
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert sorted(path.relative_to(folder).as_posix() for path in written) == [
        *("__init__.py", *sorted(COMMON), "gemmgen.lock.json"),
        *ONE,
        *(file.replace("one/", f"{name}/") for name in names[4:] for file in TWO),
    ]
    assert run("build", "good.yaml") == (
        0,
        f"generated: 0 written, {FILES} unchanged\n",
        "",
    )


def test_build_to_another_folder(run: Run) -> None:
    assert run("build", "good.yaml", "-o", "deep/er")[0] == 0
    assert all((Path("deep/er") / file).is_file() for file in ONE)
    assert not Path("generated").exists()


def test_check_is_0_when_clean_and_1_when_not(run: Run) -> None:
    code, out, _ = run("build", "--check", "good.yaml")
    assert code == 1
    assert "generated/one: missing\n" in out
    assert not Path("generated").exists()
    run("build", "good.yaml")
    assert run("build", "--check", "good.yaml")[0] == 0
    Path("good.yaml").write_text(GOOD.replace("gelu(", "relu("))
    code, out, _ = run("build", "--check", "good.yaml")
    assert code == 1
    assert "generated/one: outdated\n" in out


def test_a_file_edited_by_hand_is_kept_unless_forced(run: Run) -> None:
    run("build", "good.yaml")
    file = Path("generated/one/tiled.py")
    text = file.read_text()
    file.write_text(text.replace("BLOCK_K", "BLOCK_Q"))
    code, out, err = run("build", "good.yaml")
    assert (code, out) == (2, "")
    diff, _, message = err.rpartition("gemmgen: ")
    said = "'generated/one/tiled.py': edited by hand; --force overwrites it\n"
    assert message == said
    ours, theirs = (
        {line[1:] for line in diff.splitlines() if line.startswith(mark)}
        for mark in ("-    ", "+    ")
    )
    assert {line.replace("BLOCK_Q", "BLOCK_K") for line in ours} == theirs
    assert any("BLOCK_Q: tl.constexpr" in line for line in ours)
    assert run("build", "--check", "good.yaml")[0] == 1
    code, out, _ = run("build", "--force", "good.yaml")
    assert code == 0
    assert out.splitlines()[:-1] == ["generated/one/tiled.py: overwritten"]
    assert file.read_text() == text


def test_diff_prints_what_would_change(run: Run) -> None:
    run("build", "good.yaml")
    Path("good.yaml").write_text(GOOD.replace("gelu(", "relu("))
    code, out, err = run("build", "--diff", "good.yaml")
    assert (code, err) == (1, "")
    for file in ONE:
        assert f"--- {file} (on disk)\n+++ {file} (from the spec)\n" in out
    assert "\n-from .._runtime.functions import gelu\n" in out
    assert "\n+from .._runtime.functions import relu\n" in out
    assert run("build", "--check", "good.yaml")[0] == 1
    run("build", "good.yaml")
    assert run("build", "--diff", "good.yaml") == (0, "", "")


def test_errors_of_a_spec_go_to_stderr_with_their_places(run: Run) -> None:
    code, out, err = run("build", "bad.yaml")
    assert (code, out) == (2, "")
    first, second = err.splitlines()
    assert first.startswith("bad.yaml:3:36: unknown dtype 'bf61'; did you mean 'bf16'?")
    assert second.startswith(
        "bad.yaml:4:21: unknown op 'lineal'; did you mean 'linear'"
    )
    assert not Path("generated").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        *([], ["bild"], ["build"], ["build", "--frob", "good.yaml"]),
        *(["build", "--check", "--diff", "good.yaml"], ["show", "good.yaml"]),
        ["verify", "--profile", "slow", "good.yaml"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_2(run: Run, arguments: list[str]) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("usage: gemmgen")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "none.yaml"], "none.yaml"),
        (["list", "none.yaml"], "none.yaml"),
        (["build", "."], "cannot read '.': is a directory"),
        (
            ["show", "good.yaml", "onne"],
            "no kernel is named 'onne'; did you mean 'one'?",
        ),
        (["build", "good.yaml", "-o", "good.yaml"], "good.yaml"),
        (["build", "good.yaml", "-o", "bad.yaml/x"], "bad.yaml"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_2_and_one_line(
    run: Run, arguments: list[str], message: str
) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("gemmgen: ")
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_missing_package_is_3(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, out, err = run("verify", "good.yaml")
    assert (code, out) == (3, "")
    assert "verify needs torch, triton" in err


def test_an_interrupt_is_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    raises(monkeypatch, KeyboardInterrupt())
    assert run("build", "good.yaml") == (130, "", "gemmgen: interrupted\n")


# A build that says when its first kernel is made and goes no further.
STOPPED = """
import sys, threading
from gemmgen.base import parallel
from gemmgen import __main__

def run(function, jobs, real=parallel.run):
    parallel._cores = lambda: 2
    for _ in real(function, jobs):
        print("working", file=sys.__stdout__, flush=True)
        threading.Event().wait()
        yield

parallel.run = run
sys.exit(__main__.main())
"""


@pytest.mark.parametrize(
    "sent", all_but({signal.SIGINT}, [signal.SIGINT, signal.SIGTERM])
)
def test_control_c_ends_a_build_cleanly(home: Path, sent: signal.Signals) -> None:
    """The real signal, while workers run; nothing is written, no traceback is shown."""
    many = "\n".join(f"  - {{name: k{i}, op: linear, dtype: bf16}}" for i in range(40))
    Path("many.yaml").write_text(f"gemmgen: 1\nkernels:\n{many}\n")
    build = subprocess.Popen(
        [sys.executable, "-c", STOPPED, "build", "many.yaml"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
        # What a shell starts in the background ignores the signal, children too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert build.stdout is not None and build.stdout.readline() == "working\n"
    build.send_signal(sent)
    out, err = build.communicate()
    assert (build.returncode, out, err) == (130, "", "gemmgen: interrupted\n")
    assert not list(home.glob("generated/**/*.py"))


def test_a_fault_of_gemmgen_stays_a_traceback(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    raises(monkeypatch, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        run("build", "good.yaml")


def test_a_reader_that_had_enough(home: Path) -> None:
    """`gemmgen schema | head -1`."""
    schema = subprocess.Popen(
        [sys.executable, "-m", "gemmgen.cli.main", "schema"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert schema.stdout is not None and schema.stderr is not None
    schema.stdout.close()
    assert schema.stderr.read() == b""
    assert schema.wait() == 0


def test_json_of_build_and_check(run: Run) -> None:
    code, out, err = run("build", "--check", "--format", "json", "good.yaml")
    assert (code, err) == (1, "")
    found = json.loads(out)
    assert found["ok"] is False
    for file in ONE:
        assert {"file": file, "state": "missing"} in found["files"]
    code, out, _ = run("build", "--format", "json", "good.yaml")
    assert (code, json.loads(out)["ok"]) == (0, True)
    code, out, _ = run("build", "--check", "--format", "json", "good.yaml")
    found = json.loads(out)
    assert (code, found["ok"], found["schema"], found["command"]) == (
        0,
        True,
        1,
        "build",
    )
    assert {row["state"] for row in found["files"]} == {State.FRESH.value}


def test_json_of_errors(run: Run) -> None:
    code, out, err = run("build", "--format", "json", "bad.yaml")
    assert (code, err) == (2, "")
    found = json.loads(out)
    assert found["ok"] is False
    assert [(row["file"], row["line"], row["column"]) for row in found["errors"]] == [
        ("bad.yaml", 3, 36),
        ("bad.yaml", 4, 21),
    ]
    code, out, err = run("build", "--format", "json", "none.yaml")
    assert (code, err) == (2, "")
    assert "none.yaml" in json.loads(out)["error"]


def test_github_annotations(run: Run) -> None:
    code, out, _ = run("build", "--format", "github", "bad.yaml")
    assert code == 2
    assert out.startswith("::error file=bad.yaml,line=3,col=36::unknown dtype 'bf61'")
    code, out, _ = run("build", "--check", "--format", "github", "good.yaml")
    assert code == 1
    for file in ONE:
        assert f"::error file=generated/{file}::missing\n" in out
    run("build", "good.yaml")
    assert run("build", "--check", "--format", "github", "good.yaml") == (0, "", "")


def test_annotations_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """As actions/toolkit does: `%`, line ends, and in properties `:` and `,` too."""
    terminal.annotate("100 %\r\n::error::not mine", file="a,b:c%.yaml", line=3)
    assert capsys.readouterr().out == (
        "::error file=a%2Cb%3Ac%25.yaml,line=3::100 %25%0D%0A::error::not mine\n"
    )


@pytest.mark.parametrize("form", ["text", "json", "github"])
def test_text_of_a_spec_starts_no_command_of_the_runner(run: Run, form: str) -> None:
    r"""A value with line ends and `::` is shown quoted, on one line."""
    Path("sly.yaml").write_text(
        'gemmgen: 1\nkernels:\n  - {name: one, op: "x\\n::error::y", dtype: bf16}\n'
    )
    code, out, err = run("build", "--format", form, "sly.yaml")
    assert code == 2
    commands_found = [
        line for line in (out + err).splitlines() if line.lstrip().startswith("::")
    ]
    assert len(commands_found) == (form == "github")


def test_list(run: Run) -> None:
    code, out, _ = run("list", "good.yaml")
    header, *rows = [line.split() for line in out.splitlines()]
    assert code == 0
    assert header == ["name", "op", "layout", "dtype", "epilogue", "tiles"]
    assert [row[0] for row in rows] == ["one", "two_nn", "two_tn"]
    _, out, _ = run("list", "--format", "json", "good.yaml")
    assert [row["layout"] for row in json.loads(out)["kernels"]] == ["NT", "NN", "TN"]


def test_show(run: Run) -> None:
    code, source, _ = run("show", "good.yaml", "one")
    assert code == 0
    texts = gemmgen.outputs([Path("good.yaml")])
    files = re.findall(r"^# (one/.*)$", source, re.MULTILINE)
    assert sorted(files) == ONE
    assert source == "\n\n".join(f"# {file}\n{texts[file]}" for file in files)
    code, out, _ = run("show", "good.yaml", "one", "--stage", "plan")
    assert json.loads(out)["name"] == "one"
    code, out, _ = run("show", "good.yaml", "one", "--stage", "spec")
    assert "epilogue: gelu(acc + bias[n])\n" in out


def test_schema_holds_for_what_is_accepted_and_not_for_what_is_not(run: Run) -> None:
    _, out, _ = run("schema")
    schema = json.loads(out)
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)
    for text in (GOOD, (ROOT / "spec.yaml").read_text()):
        validator.validate(yaml.safe_load(text))
    assert not validator.is_valid(yaml.safe_load(BAD))
    assert schema == gemmgen.json_schema()


def test_init_writes_a_spec_that_builds(run: Run) -> None:
    code, out, _ = run("init")
    assert (code, out) == (0, "spec.yaml: written; next: gemmgen build spec.yaml\n")
    assert run("build", "spec.yaml")[0] == 0
    text = Path("spec.yaml").read_text()
    code, out, err = run("init")
    assert (code, out) == (2, "")
    assert "there already" in err
    assert Path("spec.yaml").read_text() == text
    assert run("init", "no/where.yaml")[0] == 2


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"gemmgen {gemmgen.__version__}\n", "")


def test_every_command_says_what_it_does(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    names = ("build", "verify", "bench", "list", "show", "explain", "schema", "init")
    for name in names:
        assert f"    {name} " in out
        assert run(name, "--help")[0] == 0


def test_python_has_the_same(home: Path) -> None:
    spec = Path("good.yaml")
    assert [plan.name for plan in gemmgen.kernels([spec])] == [
        "one",
        "two_nn",
        "two_tn",
    ]
    assert not gemmgen.check([spec]).clean
    report = gemmgen.build([spec])
    assert len(report.drift) == FILES
    assert gemmgen.check([spec]).clean
    texts = gemmgen.outputs([spec])
    one = {file: texts[file] for file in ONE}
    assert one == gemmgen.source(spec, "one")
    assert one == {file: (home / "generated" / file).read_text() for file in ONE}
    assert set(gemmgen.__all__) >= {"build", "check", "verify"}
    named = set(gemmgen.__all__) - {"__version__"}
    assert all(callable(getattr(gemmgen, name)) for name in named)
    with pytest.raises(AttributeError, match="no attribute 'bild'"):
        _ = gemmgen.bild
