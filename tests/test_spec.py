import gc
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gemmgen.base.errors import SpecErrors
from gemmgen.spec.parse import Dtypes, KernelSpec, Spec, parse
from gemmgen.yaml import reader
from tests.slow import all_but
from tests.test_errors import errors_of

ERRORS = Path(__file__).parent / "errors"
HEAD = "gemmgen: 1\nkernels:\n"


def one(settings: str, head: str = HEAD) -> KernelSpec:
    """The only kernel of a spec, a bf16 linear layer unless `settings` say other."""
    (kernel,) = parse(f"{head}  - {{name: a, {settings}}}\n", "s").kernels
    return kernel


def message(text: str | bytes) -> str:
    with pytest.raises(SpecErrors) as caught:
        parse(text, "s")
    return str(caught.value)


def test_what_is_left_out() -> None:
    kernel = one("op: linear, dtype: bf16")
    given = {name: getattr(kernel, name) for name in KernelSpec.__dataclass_fields__}
    del given["draft"], given["pieces"], given["refused"]
    assert given == {
        "name": "a",
        "op": "linear",
        "dtype": Dtypes("bf16", "bf16", None, "bf16"),
        "precision": None,
        "layout": "NT",
        "scaling": "none",
        "epilogue": "acc",
        "operands": {},
        "outputs": (),
        "tiles": (),
        "schedule": ("auto",),
        "autotune": None,
        "grad": False,
        "grad_accumulate": False,
        "module": False,
    }
    assert parse(f"{HEAD}  - {{name: a, op: linear, dtype: bf16}}", "s").targets == (
        "sm_80",
        "sm_90",
        "sm_100",
    )


GIVEN: dict[str, tuple[str, Any]] = {
    "dtype: {a: fp16, out: fp32}": ("dtype", Dtypes("fp16", "fp16", None, "fp32")),
    "dtype: {a: fp16, b: bf16, acc: fp32}": (
        "dtype", Dtypes("fp16", "bf16", "fp32", "fp16")
    ),
    "dtype: fp32, precision: tf32": ("precision", "tf32"),
    "dtype: fp16, layout: NT": ("layout", "NT"),
    "dtype: fp16, op: gemm, layout: TN": ("layout", "TN"),
    "dtype: fp16, epilogue: 'acc + 1'": ("epilogue", "acc + 1"),
    "dtype: fp16, epilogue: [bias, relu]": ("epilogue", "relu(acc + bias[n])"),
    "dtype: fp16, operands: {bias: fp32}": ("operands", {"bias": "fp32"}),
    "dtype: fp16, outputs: [out, pre]": ("outputs", (("out", None), ("pre", None))),
    "dtype: fp16, outputs: {out: fp32}": ("outputs", (("out", "fp32"),)),
    "dtype: fp16, tiles: auto": ("tiles", ()),
    "dtype: fp16, schedule: tiled": ("schedule", ("tiled",)),
    "dtype: fp16, schedule: [tiled]": ("schedule", ("tiled",)),
    "dtype: fp16, autotune: runtime": ("autotune", "runtime"),
}  # fmt: skip


@pytest.mark.parametrize("settings", GIVEN)
def test_what_is_given(settings: str) -> None:
    field, value = GIVEN[settings]
    op = "" if "op:" in settings else "op: linear, "
    assert getattr(one(op + settings), field) == value


@pytest.mark.parametrize("setting", ["scaling: none", "batch_invariant: false"])
def test_what_is_not_built_may_be_declined(setting: str) -> None:
    plain, said = (
        one(f"op: linear, dtype: fp16{more}") for more in ("", f", {setting}")
    )
    assert said == plain


def test_tiles() -> None:
    tile, other = one(
        "op: linear, dtype: bf16, tiles: [{m: 16, n: 32, k: 64}, "
        "{m: 16, n: 16, k: 16, group_m: 5, stages: 3, warps: 4, split_k: 1}]"
    ).tiles
    assert tile.model_dump(exclude_none=True) == {"m": 16, "n": 32, "k": 64}
    assert (other.group_m, other.stages, other.warps, other.split_k) == (5, 3, 4, 1)


DEFAULTS = """\
gemmgen: 1
targets: [sm_90]
defaults: {op: gemm, layout: NN, dtype: {a: bf16, out: fp32}}
kernels:
  - name: a
  - name: b_{layout}_{dtype}
    for_each: {layout: [NT, TN], dtype: [fp16, fp32]}
  - {name: c, dtype: {a: fp16}}
"""


def test_defaults_and_for_each() -> None:
    spec = parse(DEFAULTS, "s")
    assert (spec.file, spec.targets) == ("s", ("sm_90",))
    assert [(k.name, k.layout, k.dtype.a, k.dtype.out) for k in spec.kernels] == [
        ("a", "NN", "bf16", "fp32"),
        ("b_nt_fp16", "NT", "fp16", "fp16"),
        ("b_nt_fp32", "NT", "fp32", "fp32"),
        ("b_tn_fp16", "TN", "fp16", "fp16"),
        ("b_tn_fp32", "TN", "fp32", "fp32"),
        ("c", "NN", "fp16", "fp16"),
    ]


def test_a_value_is_placed_where_it_is_written() -> None:
    a, *b, c = parse(DEFAULTS, "s").kernels
    assert str(a.at("layout")) == "s:3:30"
    assert str(a.at("dtype", "out")) == "s:3:56"
    assert str(b[-1].at("layout")) == "s:7:29"
    assert str(b[-1].at("dtype")) == "s:7:48"
    assert str(b[-1].at("name")) == "s:6:11"
    assert str(c.at("dtype", "out")) == "s:8:22"
    assert str(c.at("tiles", 0, "k")) == "s:8:5"
    assert str(c.at()) == "s:8:5"


def test_places_in_lists_and_maps() -> None:
    kernel = parse(
        HEAD + "  - name: a\n    op: linear\n    dtype: bf16\n"
        "    tiles: {m: 64, n: 64, k: 64}\n    outputs: [out, pre]\n"
        "    operands: {bias: fp32}\n",
        "s",
    ).kernels[0]
    assert str(kernel.at("tiles", 0, "k")) == "s:6:30"
    assert str(kernel.at("tiles", 0, "warps")) == "s:6:12"
    assert str(kernel.at("schedule", 0)) == "s:3:5"
    assert str(kernel.at("outputs", 1)) == "s:7:20"
    assert str(kernel.at("operands", "bias")) == "s:8:22"


def test_places_in_an_epilogue() -> None:
    text = one("op: linear, dtype: bf16, epilogue: gelo(acc)")
    assert str(text.inside_epilogue(5)) == "s:3:55"
    steps = one("op: linear, dtype: bf16, epilogue: [bias, gelu]")
    assert steps.epilogue == "gelu(acc + bias[n])"
    assert str(steps.inside_epilogue(0)) == "s:3:57"
    assert str(steps.inside_epilogue(11)) == "s:3:51"
    assert str(steps.inside_epilogue(5)) == "s:3:50"
    assert str(one("op: linear, dtype: bf16").inside_epilogue(0)) == "s:3:5"


def test_a_spec_is_a_value() -> None:
    assert parse(DEFAULTS, "s") == parse(DEFAULTS.encode(), "s")


MIB = 1 << 20


def filled(head: str, unit: str, tail: str = "") -> str:
    return head + unit * ((MIB - len(head) - len(tail)) // len(unit)) + tail


KERNEL = f"{HEAD}  - {{name: a, op: linear, dtype: bf16, "
HOSTILE = {
    "brackets": "[" * MIB,
    "dashes": "- " * (MIB // 2),
    "keys": "? " * (MIB // 2),
    "anchors": filled("", "- &a 1\n"),
    "aliases": filled("- &a 1\n", "- *a\n"),
    "duplicates": filled("", "a: 1\n"),
    "values": filled("", "- a\n"),
    "documents": filled("", "---\n"),
    "indentation": "".join(" " * i + "a:\n" for i in range(1400)),
    "unclosed": filled('"', "a\n"),
    "long name": f"{HEAD}  - {{name: {'a' * 100_000}}}",
    "long placeholders": f"{HEAD}  - {{name: '{'{dtype}' * 100_000}', for_each: {{}}}}",
    "long number": f"gemmgen: {'9' * (MIB - 100)}",
    "wrong tiles": filled(KERNEL + "tiles: [", "{},", "]}"),
    "wrong steps": filled(KERNEL + "epilogue: [", "gelo,", "]}"),
    "unknown keys": "\n".join(f"a{i}: 1" for i in range(90_000)),
    "operands": KERNEL
    + "operands: {" + ", ".join(f"a{i}: fp16" for i in range(70_000)) + "}}",
    "kernels": HEAD + "".join(f"- {{name: a{i}}}\n" for i in range(10_001)),
    "wrong kernels": HEAD + "".join(f"- {{name: a{i}, op: x}}\n" for i in range(9999)),
    "for_each": HEAD + "- name: a\n  for_each: {"
    + ", ".join(f"k{i}: [1, 2, 3, 4, 5, 6, 7, 8, 9]" for i in range(1000)) + "}",
    "control": "\x01" * MIB,
    "bidi": "\u202e" * (MIB // 3),
    "returns": "\r" * MIB,
}  # fmt: skip


SLOW = {"wrong steps", "wrong tiles", "operands", "wrong kernels"}  # as "unknown keys"


@pytest.mark.parametrize("name", all_but(set(HOSTILE) - SLOW, HOSTILE))
def test_a_hostile_file_is_refused_quickly(name: str) -> None:
    gc.freeze()  # what other tests left behind is no work of this one
    start = time.process_time()
    found = message(HOSTILE[name].encode())
    taken = time.process_time() - start
    gc.unfreeze()
    assert taken < 5  # the longest takes 1, and twice that on a core that is shared
    assert all(character.isprintable() or character == "\n" for character in found)
    assert len(found) < 60_000


@pytest.mark.parametrize("path", [*ERRORS.glob("*.yaml")], ids=lambda path: path.stem)
def test_the_slower_parser_refuses_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It words a few mistakes in another way, and sees some at another place."""
    number = len(errors_of(path).splitlines())
    monkeypatch.setattr(reader, "_Loader", yaml.SafeLoader)
    assert len(errors_of(path).splitlines()) == number


def test_the_number_of_kernels_has_a_limit() -> None:
    lists = "epilogue: [{}]".format(", ".join(f"acc + {i}" for i in range(5_000)))
    kernel = f"{{name: a, op: linear, for_each: {{{lists}, dtype: [bf16, fp16]}}}}\n"
    spec = f"{HEAD}  - {kernel}"
    assert "10000" not in message(spec)
    assert message(f"{spec}  - {{name: b}}\n") == (
        "s:4:5: spec expands to more than 10000 kernels"
    )


GOOD = DEFAULTS.encode()
CORPUS = [GOOD, *(path.read_bytes() for path in sorted(ERRORS.glob("*.yaml")))]
FRAGMENTS = (
    r"""{ } [ ] ' " ~ &a *a !!str <map> [key] << --- %YAML \x00 ? - : | > # , 0x 1e9 """
    "for_each {dtype} {layout} name auto gemmgen defaults epilogue tiles"
)
PIECES = st.one_of(
    st.binary(max_size=8),
    st.sampled_from([b"\n", b"\n  ", b"\n    - ", b": ", b"\t", b"\r"]),
    st.sampled_from(FRAGMENTS.encode().split()),
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A spec, good or bad, with a few pieces cut out, put in or doubled."""
    text = draw(st.sampled_from(CORPUS))
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 12)))
        piece = draw(PIECES | st.just(text[start:end] * 2))
        text = text[:start] + piece + text[end:]
    return text


def parsed(text: str | bytes) -> Spec | None:
    """The spec in a text; None if it is refused in words that can be shown."""
    try:
        return parse(text, "s")
    except SpecErrors as errors:
        assert errors.errors
        for line in str(errors).splitlines():
            assert line.isprintable() and line.startswith("s:")
        return None


@given(st.binary(max_size=200) | mutated() | st.text(max_size=60))
def test_any_text_is_a_spec_or_has_mistakes(text: str | bytes) -> None:
    spec = parsed(text)
    for kernel in spec.kernels if spec else ():
        assert kernel.at("name") and kernel.inside_epilogue(len(kernel.epilogue))
