"""Tuning files: written, read back, and refused with the place of every mistake."""

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmgen.base.errors import SpecErrors, UsageError
from gemmgen.cli.main import main
from gemmgen.hardware.targets import TARGETS
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.tuned import tuning_file
from gemmgen.select.tuned.decision_list import ANY, Rule
from gemmgen.select.tuned.layers import Pin
from gemmgen.select.tuned.tile_text import format_tile
from gemmgen.select.tuned.tuning_file import Measured, Tuning
from gemmgen.spec import shapes
from gemmgen.spec.shapes import LARGEST, Layer, Shape
from tests.own import OWN
from tests.test_tile_text import tiles

ROOT = Path(__file__).resolve().parent.parent

GOOD = """\
gemmgen-tuning: 1
gpu: 'NVIDIA H200'
target: sm_90
made:
  triton: '3.6.0'
kernels:
  one:
    rules:
      - {M: 64, K: 2048, tile: tma 64x64x128 kfill s5 w4}
      - {tile: tiled 128x128x64 s4 w8}
    unaligned:
      - {tile: tiled 64x64x64 s4 w4}
    microseconds:
      16x512x512:
        tma 64x64x128 kfill s5 w4: 4.50
        tiled 128x128x64 s4 w8: 9.00
"""


def read(tmp_path: Path, text: str | bytes) -> Tuning:
    path = tmp_path / "gpu.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return tuning_file.read(path)


sizes = st.integers(1, LARGEST)
limits = st.one_of(sizes, st.just(ANY))
rules = st.lists(
    st.builds(Rule, st.tuples(limits, limits, limits), tiles(), st.booleans()),
    max_size=3,
)
# Times are written with two decimals of a microsecond.
seconds = st.integers(1, 10**9).map(lambda hundredths: hundredths / 100 * 1e-6)
times = st.dictionaries(
    st.builds(Shape, sizes, sizes, sizes),
    st.dictionaries(tiles(), seconds, max_size=3),
    max_size=3,
)
words = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1)
names = st.from_regex(r"[a-z]_[a-z0-9_]{0,9}", fullmatch=True)


@st.composite
def pins(draw: st.DrawFn) -> tuple[Pin, ...]:
    """Ranges of rows that ascend, each with a row in it at which it was timed."""
    ends = sorted(draw(st.lists(st.integers(1, 9999), unique=True, max_size=6)))
    return tuple(
        draw(
            st.builds(
                Pin,
                st.just(least),
                st.just(most),
                tiles(),
                st.integers(least, most),
                seconds,
                seconds,
                st.none(),
            )
        )
        for least, most in zip(ends[::2], ends[1::2], strict=False)
    )


layers = st.dictionaries(st.builds(Layer, sizes, sizes), pins(), max_size=2)
tunings = st.builds(
    Tuning,
    words,
    st.sampled_from(list(TARGETS)),
    st.dictionaries(names, words, max_size=3),
    st.dictionaries(
        names,
        st.builds(Measured, rules.map(tuple), rules.map(tuple), times, layers),
        max_size=2,
    ),
)


def known(pin: Pin) -> object:
    """What is exact of it, and its times to what a file has of them."""
    exact = pin.least, pin.most, pin.tile, pin.at
    return *exact, pytest.approx(pin.seconds), pytest.approx(pin.otherwise)


@settings(deadline=None)
@given(tuning=tunings)
def test_what_is_written_can_be_read(
    tmp_path_factory: pytest.TempPathFactory, tuning: Tuning
) -> None:
    folder = tmp_path_factory.mktemp("written")
    back = read(folder, tuning.as_text())
    assert (back.gpu, back.target, back.made) == (
        *(tuning.gpu, tuning.target),
        dict(tuning.made),
    )
    assert list(back.kernels) == list(tuning.kernels)
    for name, measured in tuning.kernels.items():
        found = back.kernels[name]
        assert found.rules == measured.rules
        assert found.unaligned == measured.unaligned
        assert list(found.layers) == list(measured.layers)
        for layer, of_layer in measured.layers.items():
            assert [known(pin) for pin in found.layers[layer]] == [
                known(pin) for pin in of_layer
            ]
        assert list(found.times) == list(measured.times)
        for shape, each in measured.times.items():
            assert found.times[shape] == pytest.approx(dict(each))
            assert list(found.times[shape].values()) == sorted(
                found.times[shape].values()
            )
    assert back.as_text() == tuning.as_text()


def test_a_file_says_what_it_says(tmp_path: Path) -> None:
    tuning = read(tmp_path, GOOD)
    assert (tuning.gpu, tuning.target) == ("NVIDIA H200", "sm_90")
    assert tuning.made == {"triton": "3.6.0"}
    one = tuning.kernels["one"]
    assert [rule.limits for rule in one.rules] == [(64, ANY, 2048), (ANY, ANY, ANY)]
    assert one.unaligned[0].tile == Tile(64, 64, 64, 8, 4, 4)
    (measured,) = one.times.items()
    assert measured[0] == Shape(16, 512, 512)
    assert [format_tile(tile) for tile in measured[1]] == [
        "tma 64x64x128 kfill s5 w4",
        "tiled 128x128x64 s4 w8",
    ]
    assert list(measured[1].values()) == pytest.approx([4.5e-6, 9e-6])


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        ("NVIDIA H200", "nvidia_h200.yaml"),
        ("NVIDIA A100-SXM4-80GB", "nvidia_a100_sxm4_80gb.yaml"),
        ("NVIDIA GH200 96GB / up ../..", "nvidia_gh200_96gb_up.yaml"),
    ],
)
def test_the_file_is_named_after_the_gpu(gpu: str, name: str) -> None:
    assert Tuning(gpu, "sm_90", {}, {}).file_name == name


@pytest.mark.parametrize("path", sorted((ROOT / "tuning").glob("*.yaml")), ids=str)
def test_our_own_files_are_as_written(path: Path) -> None:
    tuning = tuning_file.read(path)
    assert tuning.as_text() == path.read_text()
    assert tuning.file_name == path.name


def test_the_files_beside_a_spec_are_in_order(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    assert tuning_file.beside(spec) == []
    (tmp_path / "tuning").mkdir()
    for name in ("b.yaml", "a.yaml", "notes.txt"):
        (tmp_path / "tuning" / name).touch()
    assert [path.name for path in tuning_file.beside(spec)] == ["a.yaml", "b.yaml"]


LIMIT = f"must be a whole number from 1 to {LARGEST}, not"


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("target:", "targets:", "3:1: unknown key 'targets'; did you mean 'target'?"),
        ("tuning: 1", "tuning: 2", "1:1: gemmgen-tuning must be 1"),
        ("tuning: 1", "tuning: true", "1:1: gemmgen-tuning must be 1"),
        ("gemmgen-tuning: 1\n", "", "1:1: gemmgen-tuning must be 1"),
        ("sm_90", "sm_91", "3:9: target is no architecture (one of: sm_80,"),
        ("sm_90", "[sm_90]", "3:9: target is no architecture (one of: sm_80,"),
        ("target: sm_90\n", "", "1:1: target is no architecture (one of: sm_80,"),
        ("gpu: 'NVIDIA H200'\n", "", "1:1: gpu must be a text of one line"),
        ("'NVIDIA H200'", "200", "2:6: gpu must be a text of one line"),
        ("'NVIDIA H200'", '"H200\\nimport os"', "2:6: gpu must be a text of one line"),
        ("  triton: '3.6.0'", "  - 3.6.0", "5:3: made must be a map, not a list"),
        ("one:\n", "one:\n    times: 1\n", "8:5: unknown key 'times'"),
        ("kernels:", "kernels: 7\nmade:", "6:10: kernels must be a map, not number 7"),
        (
            "      - {tile: tiled 64x64x64 s4 w4}\n",
            "      {tile: tiled 64x64x64 s4 w4}\n",
            "12:7: rules are a list, not a map",
        ),
        (
            "{tile: tiled 64x64x64 s4 w4}",
            "tiled 64x64x64 s4 w4",
            "12:9: expected a map with M, N, K, waves, tile, "
            "not text 'tiled 64x64x64 s4 w4'",
        ),
        ("K: 2048", "waves: half", "9:24: waves must be full, not text 'half'"),
        ("K: 2048", "k: 2048", "9:17: unknown key 'k'; did you mean 'K'?"),
        ("K: 2048", "K: 2e3", f"9:20: K {LIMIT} number 2000.0"),
        ("K: 2048", "K: many", f"9:20: K {LIMIT} text 'many'"),
        ("K: 2048", "K: true", f"9:20: K {LIMIT} true"),
        ("K: 2048", "K: 0", f"9:20: K {LIMIT} number 0"),
        ("K: 2048", "K: -1", f"9:20: K {LIMIT} number -1"),
        ("K: 2048", "K: 2147483648", f"9:20: K {LIMIT} number 2147483648"),
        ("K: 2048", "K: [2048]", f"9:20: K {LIMIT} a list"),
        ("K: 2048", "K: ~", f"9:20: K {LIMIT} nothing"),
        ("tile: tiled 64x64x64 s4 w4", "M: 8", "12:9: a tile must be a text, not no"),
        ("tile: tiled 64x64x64 s4 w4", "tile: 64", "12:16: a tile must be a text, not"),
        ("tiled 64x64x64 s4 w4", "tiled 64x64 w4", "12:16: tile 'tiled 64x64 w4'"),
        ("tiled 64x64x64 s4 w4", "tiled 48x64x64 s4 w4", "12:16: tile 'tiled 48x"),
        ("16x512x512", "16x512", "14:7: shape '16x512' must be like 512x512x4096"),
        ("16x512x512", "0x512x512", "14:7: shape '0x512x512' has a size outside of 1"),
        ("tiled 128x128x64 s4 w8: 9", "wide: 9", "16:9: tile 'wide' must be like"),
        ("9.00", "fast", "16:33: a time must be a number above 0, not text 'fast'"),
        ("9.00", "-9.00", "16:33: a time must be a number above 0, not number -9.0"),
        ("9.00", ".nan", "16:33: a time must be a number above 0, not number nan"),
        ("9.00", ".inf", "16:33: a time must be a number above 0, not number inf"),
        ("9.00", "0", "16:33: a time must be a number above 0, not number 0"),
        ("9.00", "true", "16:33: a time must be a number above 0, not true"),
        ("9.00", "'9.00'", "16:33: a time must be a number above 0, not text '9.00'"),
        ("9.00", "[9.00]", "16:33: a time must be a number above 0, not a list"),
        ("9.00", "&nine 9.00", "16:33: anchors are not allowed"),
    ],
)  # fmt: skip
def test_mistakes_are_located(
    tmp_path: Path, before: str, after: str, says: str
) -> None:
    assert before in GOOD
    with pytest.raises(SpecErrors) as caught:
        head, tail = GOOD.rsplit(before, 1)
        read(tmp_path, head + after + tail)
    assert f"{tmp_path / 'gpu.yaml'}:{says}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ":1:1: file is empty"),
        ("# nothing\n", ":1:1: file is empty"),
        (
            "- one\n",
            ":1:1: expected a map with gemmgen-tuning, gpu, target, made, rates",
        ),
        ("seven\n", ":1:1: expected a map with gemmgen-tuning"),
        (b"\x7fELF\x02\x01\x00\xff", ":1:8: file is not UTF-8: byte 0xff"),
        (b"gpu: \x00", ":1:6: character '\\x00' is not allowed"),
        ("gpu: [", ":1:7: "),
        ("a: &a [x, x]\nb: [*a, *a]\n", ":1:4: anchors are not allowed"),
    ],
)
def test_what_is_no_tuning_file(tmp_path: Path, text: str | bytes, says: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        read(tmp_path, text)
    assert str(tmp_path / "gpu.yaml") + says in str(caught.value)


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("sm_90", "sm").replace("M: 64", "M: x").replace("9.00", "x")
    with pytest.raises(SpecErrors) as caught:
        read(tmp_path, text)
    assert [error.location.line for error in caught.value.errors] == [3, 9, 16]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read '.*none\.yaml'"):
        tuning_file.read(tmp_path / "none.yaml")


cuts = st.tuples(st.integers(0, len(GOOD)), st.integers(0, 12), st.text(max_size=4))


@settings(deadline=None)
@given(st.lists(cuts, min_size=1, max_size=3))
def test_no_damage_is_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, damages: list[tuple[int, int, str]]
) -> None:
    text = GOOD
    for start, length, put in damages:
        text = text[:start] + put + text[start + length :]
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = text.encode("utf-8", "surrogatepass")
    try:
        again = read(tmp_path_factory.mktemp("damaged"), data)
    except SpecErrors as caught:
        assert all(error.location.line >= 1 for error in caught.errors)
    else:
        assert again.as_text()


SPEC = """\
gemmgen: 1
targets: [sm_80, sm_90]
kernels:
  - {name: one, op: linear, dtype: bf16}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a spec, and a tuning file beside it."""
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_text(SPEC)
    Path("tuning").mkdir()
    return tmp_path


def tuned(text: str) -> None:
    Path("tuning/h200.yaml").write_text(text)


def said_of_tiles(kernel: str) -> str:
    """What a built kernel says of its tiles, on one line."""
    tree = ast.parse(Path(f"generated/{kernel}/tiles.py").read_text())
    return " ".join((ast.get_docstring(tree) or "").split())


@pytest.fixture
def rows() -> Callable[[str], list[str]]:
    """Rows of the built table for an architecture, their spaces single."""

    def found(architecture: str) -> list[str]:
        text = Path("generated/one/tiles.py").read_text()
        table = [
            re.sub(" +", " ", line.strip())
            for line in text.splitlines()
            if line.strip().startswith("Tile(")
        ]
        return [line for line in table if re.match(rf"\S+ {architecture},", line)]

    return found


Rows = Callable[[str], list[str]]


def test_build_prints_what_is_wrong_and_writes_nothing(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned(GOOD.replace("K: 2048", "K: many"))
    assert main(["build", "spec.yaml"]) == 2
    said = capsys.readouterr()
    assert said.err == f"tuning/h200.yaml:9:20: K {LIMIT} text 'many'\n"
    assert said.out == ""
    assert not Path("generated").exists()


def test_build_puts_the_rules_first_and_names_the_gpu(home: Path, rows: Rows) -> None:
    tuned(GOOD)
    assert main(["build", "spec.yaml"]) == 0
    assert rows("90") == [
        'Tile("tma", 90, 64, ANY, 2048, 64, 64, 128, FILL, 5, 4, 163880),',
        'Tile("tiled", 90, ANY, ANY, ANY, 128, 128, 64, 1, 4, 8, 131072),',
        'Tile("tiled", 90, ANY, ANY, ANY, 64, 64, 64, 1, 4, 4, 65536),',
    ]
    assert rows("80")
    timed = "Timed on NVIDIA H200 for sm_90, else chosen by the model."
    assert said_of_tiles("one").endswith(f". {timed}")


def test_a_file_for_no_target_of_the_spec_says_nothing(home: Path, rows: Rows) -> None:
    tuned(GOOD)
    Path("spec.yaml").write_text(SPEC.replace(", sm_90", ""))
    assert main(["build", "spec.yaml"]) == 0
    assert not rows("90")
    assert said_of_tiles("one").endswith(". The model chose them.")


def test_without_a_row_for_all_tensors_the_model_adds_some(
    home: Path, rows: Rows
) -> None:
    text = GOOD.replace("      - {tile: tiled 128x128x64 s4 w8}\n", "")
    tuned(text.replace("    unaligned:\n      - {tile: tiled 64x64x64 s4 w4}\n", ""))
    main(["build", "spec.yaml"])
    assert rows("90")[0].startswith('Tile("tma", 90, 64, ANY, 2048,')
    assert rows("90")[-1].startswith(
        ('Tile("tiled", 90, ANY,', 'Tile("split_k", 90, A')
    )


@pytest.mark.parametrize(
    ("tile", "reason"),
    [
        ("tma 256x256x128 s5 w8", "it needs 655400 bytes of shared memory, sm_90 has"),
        ("warp_specialized 128x88x64 s4 w8", "warp_specialized moves rows along n in"),
    ],
)
def test_a_rule_that_does_not_fit_is_an_error(
    home: Path, tile: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned(GOOD.replace("tma 64x64x128 kfill s5 w4}", f"{tile}}}"))
    assert main(["build", "spec.yaml"]) == 2
    said = capsys.readouterr().err
    start = "tuning/h200.yaml:9:32: the rule does not fit kernel 'one': "
    assert said.startswith(start + reason)
    assert said.endswith("run gemmgen tune again, or delete the kernel here\n")
    assert not Path("generated").exists()


def test_a_kernel_of_no_spec_is_an_error(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned(GOOD.replace("  one:", "  onee:"))
    assert main(["build", "spec.yaml"]) == 2
    said = capsys.readouterr().err
    start = "tuning/h200.yaml:7:3: unknown kernel 'onee'; did you mean 'one'?"
    assert said.startswith(start)
    Path("more.yaml").write_text(SPEC.replace("one", "onee"))
    assert main(["build", "spec.yaml", "more.yaml"]) == 0


@pytest.mark.parametrize(
    "tile", ["tiled 8192x64x64 s4 w4", "tiled 64x64x64 s9999 w4",
             "tiled 64x64x64 s4 w512", "tiled 64x64x64 g512 s4 w4",
             "split_k 64x64x64 k9999 s4 w4", "gemv 1x2x8192 s1 w8"]
)  # fmt: skip
def test_an_absurd_tile_is_an_error(tmp_path: Path, tile: str) -> None:
    with pytest.raises(SpecErrors, match="which is more than any GPU takes"):
        read(tmp_path, GOOD.replace("tiled 64x64x64 s4 w4", tile).encode())


def test_a_schedule_that_the_spec_rules_out_is_left_out(home: Path, rows: Rows) -> None:
    tuned(GOOD)
    Path("spec.yaml").write_text(SPEC.replace("bf16", "bf16, schedule: [tiled]"))
    assert main(["build", "spec.yaml"]) == 0
    assert [row.split(",")[0] for row in rows("90")] == ['Tile("tiled"'] * 2


def test_tiles_of_the_spec_are_stronger_than_the_file(home: Path, rows: Rows) -> None:
    tuned(GOOD)
    tile = "tiles: {m: 64, n: 64, k: 64}, schedule: tiled"
    Path("spec.yaml").write_text(SPEC.replace("bf16", f"bf16, {tile}"))
    assert main(["build", "spec.yaml"]) == 0
    assert len(rows("80")) == 1 and not rows("90")  # all targets begin with it
    built = [path.read_text() for path in Path("generated/one").glob("*.py")]
    assert built and not any("timed on" in text.lower() for text in built)


def test_a_changed_table_is_drift_and_a_changed_time_is_none(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned(GOOD)
    main(["build", "spec.yaml"])
    tuned(GOOD.replace("9.00", "8.00"))
    assert main(["build", "--check", "spec.yaml"]) == 0
    tuned(GOOD.replace("M: 64", "M: 32"))
    capsys.readouterr()
    assert main(["build", "--check", "spec.yaml"]) == 1
    assert "generated/one: outdated\n" in capsys.readouterr().out
    assert main(["build", "spec.yaml"]) == 0
    assert "generated/one: rewritten\n" in capsys.readouterr().out


def test_the_lists_of_shapes_are_those_of_the_projects_own_file() -> None:
    """So that whoever tunes another GPU gets as much to choose from."""
    kernels = set(OWN)
    path = ROOT / "benchmarks" / "speed" / "tuning_shapes.yaml"
    listed = {name: set(found) for name, found in shapes.read(path, kernels).items()}
    timed = tuning_file.read(ROOT / "tuning" / "nvidia_h200.yaml").kernels
    assert listed == {name: set(one.times) for name, one in timed.items()}


def test_no_layer_that_is_raced_is_among_what_costs_of_16_bits_are_fitted_to() -> None:
    kernels = set(OWN)

    def layers(name: str) -> set[Layer]:
        found = shapes.read(ROOT / "benchmarks" / "speed" / name, kernels)
        of_16_bits = {"linear_bf16", "linear_bias_gelu"} & found.keys()
        return {shape.layer for kernel in of_16_bits for shape in found[kernel]}

    tuned = layers("tuning_shapes.yaml")
    assert len(tuned) > 80
    assert not tuned & (layers("models.yaml") | layers("suite.yaml"))
