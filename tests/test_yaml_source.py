import math
from typing import Any

import pytest
import yaml

from gemmgen.base.errors import Mistakes, SpecErrors
from gemmgen.yaml import reader
from gemmgen.yaml.reader import load
from gemmgen.yaml.tree import Node


def read(text: str | bytes) -> Node:
    mistakes = Mistakes()
    root = load(text, "s", mistakes)
    mistakes.stop_if_any()
    return root


def errors(text: str | bytes) -> list[str]:
    with pytest.raises(SpecErrors) as caught:
        read(text)
    return str(caught.value).splitlines()


SCALARS: dict[str, Any] = {
    "null": None, "~": None, "": None, "Null": None, "nULL": "nULL",
    "true": True, "False": False, "yes": "yes", "no": "no", "on": "on", "y": "y",
    "12": 12, "-12": -12, "+3": 3, "010": 10, "0o17": 15, "0x1F": 31, "-0x1F": "-0x1F",
    "0b1": "0b1", "1_000": "1_000", "1:30": "1:30", "2026-01-01": "2026-01-01",
    "1.5": 1.5, ".5": 0.5, "1.": 1.0, "1e3": 1000.0, "-.inf": -math.inf,
    "1e400": math.inf,
    "١٢": "١٢", "=": "=", "'12'": "12", '"true"': "true", "bf16": "bf16",
}  # fmt: skip


@pytest.mark.parametrize("text", SCALARS)
def test_a_scalar_means_what_yaml_1_2_says(text: str) -> None:
    value = read(f"a: {text}\n").at("a").value
    assert (type(value), value) == (type(SCALARS[text]), SCALARS[text])


def test_nan() -> None:
    assert math.isnan(read("a: .nan").at("a").plain())


def test_values_and_keys_have_places() -> None:
    root = read("# é\ngemmgen: 1\nkernels:\n  - {name: 𝑎𝑎, op: x}\n")
    kernel = root.at("kernels").items[0]
    assert str(root.location) == "s:2:1"
    assert str(root.keys["kernels"]) == "s:3:1"
    assert str(kernel.location) == "s:4:5"
    assert str(kernel.keys["op"]) == "s:4:16"
    assert str(kernel.at("op").location) == "s:4:20"
    assert kernel.plain() == {"name": "𝑎𝑎", "op": "x"}


# Each text is found inside its scalar, whose `^` marks where.
INSIDE = {
    "plain": "e: acc + ^bias[n]",
    "quoted": "e: 'acc + ^bias[n]'",
    "double quoted": 'e: "acc + ^bias[n]"',
    "literal": "e: |  # why\n  pre = acc\n\n  out = ^bias[n]\n",
    "literal, indented": "e: |2-\n    pre = acc\n  out = ^bias[n]",
    "literal, CRLF": "e: |\r\n  pre = acc\r\n  out = ^bias[n]\r\n",
    "folded": "e: >-\n  acc +\n  ^bias[n]",
    "plain, two lines": "e: acc +\n  ^bias[n]",
    "quoted, two lines": "e: 'acc +\n\n  ^bias[n]'",
    "not ASCII before": "é: {e: 𝑎 + ^bias }",
}


@pytest.mark.parametrize("marked", INSIDE.values(), ids=INSIDE.keys())
def test_an_offset_in_a_text_has_a_place(marked: str) -> None:
    before, text = marked.partition("^")[0], marked.replace("^", "")
    root = read(text)
    node = root.at("e") if "e" in root.keys else root.at("é").at("e")
    place = node.inside(str(node.value).index("bias"))
    line = before.count("\n")
    column = len(before) - before.rfind("\n")
    assert (place.line, place.column) == (line + 1, column)


@pytest.mark.parametrize("text", [r'e: "\x61cc + bias"', "e: 'it''s acc'", 'e: ""'])
def test_an_offset_behind_an_escape_is_the_start_of_the_text(text: str) -> None:
    node = read(text).at("e")
    assert node.inside(5) == node.location


def test_an_offset_in_white_space_is_after_what_comes_before_it() -> None:
    node = read("e: |\n  acc +\n  b\n").at("e")
    assert str(node.inside(5)) == "s:2:8"
    assert str(node.inside(99)) == "s:3:4"
    assert str(node.inside(0)) == "s:2:3"


def test_a_byte_order_mark_is_not_part_of_the_first_line() -> None:
    assert read(b"\xef\xbb\xbfa: b").keys["a"].column == 1


def test_both_parsers_of_pyyaml_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [marked.replace("^", "") for marked in INSIDE.values()]
    nodes = [read(text) for text in texts]
    monkeypatch.setattr(reader, "_Loader", yaml.SafeLoader)
    assert [read(text) for text in texts] == nodes


@pytest.mark.parametrize("extra", range(3))
def test_the_limits_are_exact(extra: int) -> None:
    deepest = "[" * (reader.MAX_DEPTH + extra) + "]" * (reader.MAX_DEPTH + extra)
    largest = "a: " + "x" * (reader.MAX_BYTES - 3 + extra)
    longest = "a: " + "1" * (reader.MAX_DIGITS + extra)
    if not extra:
        for text in (deepest, largest, longest):
            read(text)
        return
    assert errors(deepest) == ["s:1:21: lists and maps nest deeper than 20"]
    assert errors(largest) == [
        "s:1:1: file has more than 1048576 bytes (1 MiB), which is the most"
    ]
    assert errors(longest) == ["s:1:4: number has more than 40 characters"]


def test_the_mistakes_of_a_file_are_found_together() -> None:
    assert errors("a: &x 1\nb: *x\nb: !t 2\n1: 3\nc: [") == [
        "s:1:4: anchors are not allowed; use 'defaults' or 'for_each' to say a thing "
        "once",
        "s:2:4: aliases are not allowed; use 'defaults' or 'for_each' to say a thing "
        "once",
        "s:3:1: duplicate key 'b'; the first is at s:2:1",
        "s:3:4: tags are not allowed",
        "s:4:1: a key must be text, not number 1",
        "s:5:5: expected a value",
    ]


def test_very_many_mistakes_end_the_search() -> None:
    found = errors("a: 1\n" * 1000)
    assert len(found) == Mistakes.MOST + 1
    assert found[-1] == "s:101:1: too many mistakes; stopped looking after 100"


def test_text_with_a_lone_surrogate_is_refused() -> None:
    assert errors("a: \ud800") == ["s:1:4: character '\\ud800' is not allowed"]
