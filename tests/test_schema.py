import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from gemmgen.epilogue.shorthand import OPERANDS, STEPS, expand, step_at
from gemmgen.spec.schema import (
    DtypeMap,
    File,
    Kernel,
    Model,
    Settings,
    Tile,
    json_schema,
)
from gemmgen.spec.value_types import Whole
from gemmgen.tables.dtypes import DTYPES
from gemmgen.tables.operations import OPERATIONS

jsonschema = pytest.importorskip("jsonschema")

SPECS = [Path(__file__).parents[1] / "spec.yaml"]


def kernel(**settings: Any) -> dict[str, Any]:
    return {"gemmgen": 1, "kernels": [{"name": "a", **settings}]}


RIGHT = [
    {**kernel(), "targets": ["sm_80"], "defaults": {"op": "gemm"}},
    *(kernel(op=op) for op in OPERATIONS),
    *(kernel(dtype=name) for name in DTYPES),
    kernel(dtype={"a": "fp16", "acc": "fp32", "out": "fp32"}),
    kernel(tiles="auto"),
    kernel(tiles={"m": 16, "n": 512, "k": 64, "warps": 16, "stages": 12}),
    kernel(tiles=[{"m": 16, "n": 16, "k": 16}, {"m": 16, "n": 16, "k": 32}]),
    kernel(schedule="auto"),
    kernel(schedule=["tiled", "tma"]),
    kernel(epilogue="acc"),
    kernel(epilogue=["bias", "square", "square"]),
    kernel(operands={"bias": "fp32"}, outputs=["out", "pre"]),
    kernel(outputs={"out": "bf16"}, autotune="runtime", batch_invariant=True),
    kernel(for_each={"dtype": ["fp16", {"a": "bf16"}], "tiles": ["auto"]}),
]  # fmt: skip
WRONG = [
    {"gemmgen": 2, "kernels": [{"name": "a"}]},
    {"gemmgen": 1, "kernels": []},
    {"gemmgen": 1},
    {"gemmgen": 1, "kernels": [{}]},
    kernel(op=None),
    kernel(dtype={"out": "fp32"}),
    kernel(dtype={"a": "fp16", "b": None}),
    kernel(tiles={"m": 50, "n": 64, "k": 64}),
    kernel(tiles=[]),
    kernel(schedule=["auto"]),
    kernel(schedule=["tiled", "tiled"]),
    kernel(outputs=["Out"]),
    kernel(layuot="NT"),
    kernel(for_each={"name": ["a"]}),
]


@pytest.fixture(scope="module")
def editor() -> Any:
    schema = json_schema()
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


@pytest.mark.parametrize("spec", RIGHT, ids=str)
def test_editors_and_the_loader_accept(spec: dict[str, Any], editor: Any) -> None:
    File.model_validate(spec)
    assert editor.is_valid(spec)


@pytest.mark.parametrize("spec", WRONG, ids=str)
def test_editors_and_the_loader_refuse(spec: dict[str, Any], editor: Any) -> None:
    with pytest.raises(ValueError):
        File.model_validate(spec)
    assert not editor.is_valid(spec)


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.name)
def test_editors_accept_the_specs_of_this_project(path: Path, editor: Any) -> None:
    editor.validate(yaml.safe_load(path.read_text()))


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for one in schema.values():
            yield from parts(one)
    elif isinstance(schema, list):
        for one in schema:
            yield from parts(one)


def test_the_json_schema_keeps_to_what_editors_know() -> None:
    schema = json_schema()
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    for part in parts(schema):
        assert not {"$defs", "prefixItems", "discriminator"} & part.keys()
        assert "$ref" not in part or len(part) == 1
        assert part.get("default", "something") is not None


@pytest.mark.parametrize("model", [File, Kernel, Settings, Tile, DtypeMap])
def test_every_key_is_explained(model: type[Model]) -> None:
    """Every example is also one that the loader takes."""
    hints = typing.get_type_hints(model, include_extras=True)
    for key, field in model.model_fields.items():
        assert field.description and field.description.endswith(".")
        assert field.examples
        adapter = TypeAdapter(hints[key])
        for example in field.examples:
            adapter.validate_python(example, strict=True)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (48, "tile k=48 is not a power of two, because; nearest: 32, 64"),
        (17, "tile k=17 is not a power of two, because; nearest: 16, 32"),
        (15, "tile k=15 is not between 16 and 512"),
        (1024, "tile k=1024 is not between 16 and 512"),
        (True, "tile k must be a whole number, not true"),
        (64.0, "tile k must be a whole number, not number 64.0"),
        (None, "tile k must be a whole number, not nothing"),
    ],
)
def test_numbers_are_refused_with_a_reason(value: object, words: str) -> None:
    kind = Whole("tile k", 16, 512, "because")
    assert not kind.accepts(value)
    assert kind.wording(value) == words


EXPANSIONS = {
    (): "acc",
    ("bias", "gelu", "residual"): "gelu(acc + bias[n]) + residual[m, n]",
    ("alpha", "bias", "row_bias"): "acc * alpha[] + bias[n] + row_bias[m]",
    ("bias", "scale", "row_scale"): "(acc + bias[n]) * scale[n] * row_scale[m]",
    ("square", "square"): "square(square(acc))",
}


@pytest.mark.parametrize("steps", EXPANSIONS, ids=str)
def test_a_list_of_steps_is_short_for_an_expression(steps: tuple[str, ...]) -> None:
    pieces = expand(steps, "acc")
    text = "".join(piece.text for piece in pieces)
    assert text == EXPANSIONS[steps]
    for index, step in enumerate(steps):
        if steps.count(step) == 1:
            assert (
                step_at(pieces, text.index(OPERANDS.get(step, ("", step))[1])) == index
            )
    assert step_at(pieces, text.index("acc")) is None
    assert step_at(pieces, len(text)) is None


def test_steps_are_operands_and_functions_of_one_argument() -> None:
    assert {"bias", "gelu", "square"} < set(STEPS)
    assert not {"clamp", "maximum", "where"} & set(STEPS)
