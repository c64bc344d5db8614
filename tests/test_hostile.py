"""Hostile and broken input, through the real command line, under limits.

Each case ends within 5 s of CPU time and 500 MB in a located error or in a build, with
no traceback and no byte written outside the output folder. Texts of single errors are
held by `test_errors.py`, whose files are part of the corpus.
"""

import ast
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gemmgen.base.errors import SpecErrors
from gemmgen.gate.allowlist import check_module
from gemmgen.render import render
from gemmgen.render.names.parts import file_of, public, stems
from gemmgen.select.plan import plans
from gemmgen.spec.parse import parse
from tests import forked
from tests.forked import Done
from tests.slow import all_but

ROOT = Path(__file__).resolve().parent.parent
# What takes most takes 1 s, and twice as long where others use the same core.
SECONDS, BYTES = 5.0, 500_000_000
LOCATED = re.compile(r"spec\.yaml:\d+:\d+: \S")
GOOD = """\
gemmgen: 1
kernels:
  - name: k
    op: linear
    dtype: bf16
    epilogue: relu(acc + bias[n])
"""


LIMITED = f"""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({2 * BYTES}, {2 * BYTES}))
resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
os.dup2(1, 2)
sys.dont_write_bytecode = True
from gemmgen.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def gemmgen(*arguments: str, cwd: Path) -> Done:
    """Run the command line under a limit of address space and CPU time."""
    command = ("-c", LIMITED, *arguments)
    return forked.python(cwd, *command, modules=forked.COMMAND_LINE)


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """All that lies in a folder, at any depth, links not followed."""
    found = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(root, name)
            data = b""
            if path.is_symlink():
                data = os.readlink(path).encode()
            elif path.is_file():
                data = path.read_bytes()
            status = path.lstat()
            found[str(path.relative_to(folder))] = (status.st_mode, status.st_ino, data)
    return found


def assert_harmless(ended: Done) -> None:
    """No traceback, no waste, and nothing for a terminal to obey."""
    assert ended.returncode in (0, 2), ended.stdout[-2000:]
    assert "Traceback" not in ended.stdout
    assert all(one.isprintable() or one == "\n" for one in ended.stdout)
    assert ended.seconds < SECONDS and ended.bytes < BYTES


def build(folder: Path, spec: bytes) -> Done:
    """Build a spec in a folder of its own and look whether anything else changed."""
    home = folder / "home"
    home.mkdir()
    (home / "spec.yaml").write_bytes(spec)
    before = snapshot(folder)
    ended = gemmgen("build", "spec.yaml", cwd=home)
    after = snapshot(folder)
    outside = {
        name: what
        for name, what in after.items()
        if not name.startswith("home/generated")
    }
    assert outside == before
    assert_harmless(ended)
    if ended.returncode:
        assert "home/generated" not in after
    return ended


def kernel(**keys: str) -> bytes:
    """A spec of one kernel, some of whose values are replaced."""
    values = {"name": "k", "op": "gemm", "dtype": "fp16", "layout": "NN", **keys}
    lines = "".join(f"    {key}: {value}\n" for key, value in values.items())
    return f"gemmgen: 1\nkernels:\n  -\n{lines}".encode()


def text(value: str) -> str:
    """A YAML string, every character escaped."""
    escaped = value.encode("utf-32-be").hex(" ", 4).split()
    return '"' + "".join(f"\\U{one}" for one in escaped) + '"'


def bombs() -> dict[str, bytes]:
    deep = ["[" * 300 + "]" * 300, "{a: " * 5000 + "}" * 5000, "- " * 20_000]
    found = {f"deep {i}": f"gemmgen: {one}\n".encode() for i, one in enumerate(deep)}
    aliases = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
    )
    each = ", ".join(f"a{i}: [{', '.join(map(str, range(64)))}]" for i in range(8))
    found["aliases"] = aliases.encode()
    found["recursive alias"] = b"gemmgen: &a [*a]\nkernels: *a\n"
    found["for_each"] = kernel(for_each=f"{{{each}}}")
    found["many kernels"] = b"gemmgen: 1\nkernels:\n" + b"  - {name: k}\n" * 50_000
    found["many errors"] = b"gemmgen: 1\nkernels:\n" + b"  - {x: y}\n" * 20_000
    found["long line"] = b"gemmgen: " + b"9" * 3_000_000
    found["many anchors"] = b"".join(b"- &a%d x\n" % i for i in range(50_000))
    found["spaces"] = b" " * 3_000_000
    found["quotes"] = b"gemmgen: " + b"'" * 1_000_001
    return found


def epilogues() -> dict[str, str]:
    return {
        "300 brackets": "(" * 300 + "acc" + ")" * 300,
        "300 open brackets": "(" * 300,
        "100,000 minus": "-" * 100_000 + "acc",
        "100,000 plus": "acc" + " + acc" * 100_000,
        "100,000 attributes": "acc" + ".x" * 100_000,
        "power tower": "9 ** 9 ** 9 ** 9",
        "huge number": "acc * " + "9" * 100_000,
        "huge exponent": "acc * 1e999999999",
        "many lines": "x = acc\n" * 10_000,
        "nested calls": "relu(" * 250 + "acc" + ")" * 250,
        "walrus": "(acc := 1)",
        "lambda": "(lambda: acc)()",
        "import": "__import__('os').system('touch /tmp/owned')",
        "f-string": "f'{acc}'",
        "attribute": "acc.__class__.__bases__[0]",
        "comprehension": "[acc for acc in acc]",
        "builtin": "eval('acc')",
        "shadowed builtin": "acc + print[n]",
        "module": "acc + torch[n] + tl[n] + os[n]",
        "keyword": "acc + class[n]",
        "look-alike": "ａｃｃ + 𝑏𝑖𝑎𝑠[n]",
        "NUL": "acc\0",
        "doubling": "\n".join(
            ["x0 = acc"] + [f"x{i} = x{i - 1} * x{i - 1}" for i in range(1, 60)]
            + ["out = x59"]
        ),
    }  # fmt: skip


HOSTILE = {
    "NUL": "\0",
    "CR": "a\rimport os\r",
    "LF": "a\nimport os\n",
    "line separator": "a\u2028import os",
    "form feed": "\x0cimport os",
    "escape": "\x1b]0;owned\x07",
    "right to left": "a\u202eb",
    "look-alike": "ｋ",
    "italic": "𝑘",
    "combining": "k\u0301",
    "keyword": "class",
    "soft keyword": "match",
    "builtin": "print",
    "module": "torch",
    "dunder": "__init__",
    "path": "../../etc/passwd",
    "absolute path": "/tmp/owned",
    "device": "con",
    "dots": "..",
    "empty": "",
    "template": "{{ 7 * 7 }}{% include '/etc/passwd' %}{# x #}",
    "docstring end": '"""; import os',
    "backslash": "\\",
    "placeholder": "{layout.__class__}",
    "number": "9" * 5000,
    "long": "k" * 100_000,
    "workflow command": "::error::owned",
}
PLACES: dict[str, Callable[[str], bytes]] = {
    "every value": lambda it: kernel(
        name=it, op=it, dtype=it, layout=it, epilogue=it, precision=it, schedule=it,
        autotune=it, operands=f"{{bias: {it}}}", outputs=f"[{it}]", targets=f"[{it}]",
        tiles=f"[{{m: {it}, n: {it}, k: {it}}}]", for_each=f"{{x: [{it}]}}",
    ),
    "name": lambda it: kernel(name=it),
    "epilogue": lambda it: kernel(epilogue=it),
    "operand": lambda it: kernel(epilogue="acc + bias[n]", operands=f"{{{it}: fp32}}"),
    "output": lambda it: kernel(outputs=f"{{{it}: fp32}}"),
    "key": lambda it: kernel() + f"    ? {it}\n    : 1\n".encode(),
    "item": lambda it: kernel(name="k_{x}", for_each=f"{{x: [{it}]}}"),
}  # fmt: skip


def corpus() -> dict[str, bytes]:
    found = {
        f"errors/{path.name}": path.read_bytes()
        for path in sorted((ROOT / "tests" / "errors").glob("*.yaml"))
    }
    found |= {f"bomb: {name}": data for name, data in bombs().items()}
    found |= {
        f"epilogue: {name}": kernel(epilogue=text(value))
        for name, value in epilogues().items()
    }
    found["layer: doubling"] = kernel(
        op="linear", layout="NT", module="true", grad="true",
        epilogue=text(epilogues()["doubling"]),
    )  # fmt: skip
    found |= {
        f"{place}: {name}": make(text(value))
        for place, make in PLACES.items()
        for name, value in HOSTILE.items()
    }
    for number in ("1e400", "0x7fffffffffffffffff", "-1", "1_0", "٣", ".inf", ".nan"):
        found[f"number {number}"] = kernel(
            tiles=f"[{{m: {number}, n: {number}, k: 64}}]"
        )
        found[f"version {number}"] = GOOD.replace(": 1", f": {number}", 1).encode()
    encodings = ("utf-16", "utf-16-le", "utf-32", "latin-1", "utf-7", "cp500")
    found |= {name: GOOD.replace("k\n", "é\n").encode(name) for name in encodings}
    found |= {"overlong": b"\xc0\xaf" + GOOD.encode(), "surrogate": b"a: \xed\xa0\x80"}
    return found


CORPUS = corpus()


# Of several of a kind one.
QUICK = {"bomb: deep 1", "bomb: recursive alias", "bomb: for_each", "bomb: many errors"}
QUICK |= {"bomb: many kernels", "bomb: long line", "bomb: many anchors"}
QUICK |= {"every value: docstring end", "every value: template", "item: LF"}
QUICK |= {"epilogue: import", "number 1e400", "utf-16-le"}
QUICK |= {"layer: doubling"}


@pytest.mark.parametrize("case", all_but(QUICK, CORPUS))
def test_the_corpus(tmp_path: Path, case: str) -> None:
    ended = build(tmp_path, CORPUS[case])
    if ended.returncode:
        assert LOCATED.match(ended.stdout), ended.stdout[:500]


def out_of(folder: Path) -> Path:
    home = folder / "home"
    home.mkdir()
    (home / "spec.yaml").write_text(GOOD)
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "k.py").write_text("mine\n")
    return home / "generated"


def a_link_inside(out: Path) -> None:
    out.mkdir()
    (out / "__init__.py").symlink_to("../../elsewhere/k.py")


def a_link_in_a_kernel(out: Path) -> None:
    (out / "k").mkdir(parents=True)
    (out / "k" / "tiled.py").symlink_to("../../../elsewhere/k.py")


def a_link_as_a_kernel(out: Path) -> None:
    out.mkdir()
    (out / "k").symlink_to("../../elsewhere")


def a_dangling_link_as_a_kernel(out: Path) -> None:
    out.mkdir()
    (out / "k").symlink_to("../../elsewhere/new")


def a_file_as_a_kernel(out: Path) -> None:
    out.mkdir()
    (out / "k").write_text("mine")


def a_dangling_link_inside(out: Path) -> None:
    out.mkdir()
    (out / "__init__.py").symlink_to("../../elsewhere/new.py")


def a_link_as_lock(out: Path) -> None:
    out.mkdir()
    (out / "gemmgen.lock.json").symlink_to("/dev/zero")


def a_loop(out: Path) -> None:
    out.symlink_to("generated")


def a_pipe_inside(out: Path) -> None:
    out.mkdir()
    os.mkfifo(out / "__init__.py")


def a_pipe_in_a_kernel(out: Path) -> None:
    (out / "k").mkdir(parents=True)
    os.mkfifo(out / "k" / "tiled.py")


def a_pipe_as_a_kernel(out: Path) -> None:
    out.mkdir()
    os.mkfifo(out / "k")


def read_only(out: Path) -> None:
    """A folder of /proc: even root cannot write there."""
    out.symlink_to("/proc/self/fd")


FOLDERS: dict[str, Callable[[Path], object]] = {
    "symbolic link": lambda out: out.symlink_to("../elsewhere"),
    "dangling": lambda out: out.symlink_to("../nowhere"),
    "loop": a_loop,
    "file": lambda out: out.write_text("mine"),
    "pipe": os.mkfifo,
    "link inside": a_link_inside,
    "link in a kernel": a_link_in_a_kernel,
    "link as a kernel": a_link_as_a_kernel,
    "dangling link as a kernel": a_dangling_link_as_a_kernel,
    "file as a kernel": a_file_as_a_kernel,
    "dangling link inside": a_dangling_link_inside,
    "link as lock": a_link_as_lock,
    "pipe inside": a_pipe_inside,
    "pipe in a kernel": a_pipe_in_a_kernel,
    "pipe as a kernel": a_pipe_as_a_kernel,
    "link to /proc": read_only,
}


FAST_FOLDERS = {"symbolic link", "link in a kernel", "link as lock", "pipe inside"}


@pytest.mark.parametrize("case", all_but(FAST_FOLDERS, FOLDERS))
def test_a_hostile_folder_is_refused(tmp_path: Path, case: str) -> None:
    out = out_of(tmp_path)
    FOLDERS[case](out)
    before = snapshot(tmp_path)
    ended = gemmgen("build", "spec.yaml", cwd=out.parent)
    assert_harmless(ended)
    assert ended.returncode == 2 and "generated" in ended.stdout
    after = snapshot(tmp_path)
    assert after == before


@pytest.mark.parametrize("out", ["/proc/gemmgen", "/dev/full/x", "/dev/null"])
def test_a_folder_where_nobody_can_write(tmp_path: Path, out: str) -> None:
    home = out_of(tmp_path).parent
    ended = gemmgen("build", "-o", out, "spec.yaml", cwd=home)
    assert_harmless(ended)
    assert ended.returncode == 2 and re.match("gemmgen: cannot open '", ended.stdout)


@pytest.mark.parametrize("spec", [".", "/dev/null", "missing.yaml", "spec.yaml/x"])
def test_a_spec_that_is_none(tmp_path: Path, spec: str) -> None:
    home = out_of(tmp_path).parent
    ended = gemmgen("build", spec, "-o", "out", cwd=home)
    assert_harmless(ended)
    assert ended.returncode == 2 and not (home / "out").exists()


def test_a_full_disk(tmp_path: Path) -> None:
    """A file system of one page; what does not fit leaves nothing behind."""
    home = out_of(tmp_path).parent
    script = (
        "mkdir small && mount -t tmpfs -o size=4k none small && "
        f"{sys.executable} -m gemmgen.cli.main build -o small/generated spec.yaml; "
        "code=$?; find small -type f; exit $code"
    )
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip(
            "no name space to mount in: TestFailure of test_folder.py stands in"
        )
    assert done.returncode == 2 and not done.stdout
    assert re.fullmatch(
        r"gemmgen: cannot write '.*': no space left on device\n", done.stderr
    )


PIECES = st.sampled_from(
    [
        "acc", "bias[n]", "relu(acc)", "k", "gemm", "linear", "fp16", "bf16", "NN",
        "tiled", "auto", "1", "64", "-1", "1e9", "true", "null", "{m: 64}", "[]", "{}",
        "{layout}", "*a", "&a x", "!!python/object:os.system x", "| x", "? x", "# x",
    ]
)  # fmt: skip
CHARACTERS = st.text(st.characters(codec="utf-8"), max_size=12)
VALUES = st.one_of(
    PIECES,
    st.sampled_from([text(one) for one in HOSTILE.values() if len(one) < 100]),
    CHARACTERS.map(text),
    CHARACTERS,
)
KEYS = st.sampled_from(
    ["name", "op", "dtype", "layout", "epilogue", "precision", "schedule", "autotune",
     "operands", "outputs", "targets", "tiles", "for_each", "x"]
)  # fmt: skip


@settings(max_examples=300)
@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4))
@example({"name": "k_{layout}", "for_each": "{layout: [NN]}"})
def test_a_spec_of_pieces_is_an_error_or_harmless(keys: dict[str, str]) -> None:
    """In process: the errors are located, and what is rendered passes the gate."""
    started = time.process_time()
    try:
        made = plans(parse(kernel(**keys), "spec.yaml"))
    except SpecErrors as errors:
        assert all(one.isprintable() or one == "\n" for one in str(errors))
        assert all(LOCATED.match(line) for line in str(errors).splitlines())
        made = ()
    for one in made[:1]:
        texts = render.files(one, "spec.yaml")
        assert list(texts) == [file_of(one, stem) for stem in stems(one)]
        for stem, (name, text) in zip(stems(one), texts.items(), strict=True):
            check_module(ast.parse(text), name, public(one.name, stem))
    assert time.process_time() - started < SECONDS
