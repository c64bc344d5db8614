"""The data model of a spec file, and its JSON Schema for editors.

Knows the whole language, built or not, one value at a time; rules between values are
for `validation.py` and for `select`.
"""

from functools import partial
from typing import Annotated, Any, TypeAlias, get_type_hints

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, create_model
from pydantic.json_schema import GenerateJsonSchema

from gemmgen.epilogue.shorthand import STEPS
from gemmgen.hardware.gpus import NAMES, SHOWN, unknown_target
from gemmgen.schedules import SCHEDULES
from gemmgen.schedules.parts.tile import MOST_OF_TILES
from gemmgen.spec.value_types import Choice, Exactly, Flag, Identifier, Several, Whole
from gemmgen.tables.dtypes import DTYPES, PRECISIONS, unknown_dtype
from gemmgen.tables.layouts import LAYOUTS
from gemmgen.tables.operations import OPERATIONS
from gemmgen.tables.scalings import SCALINGS

VERSION = 1
AUTO = "auto"
ACCUMULATORS = tuple(dict.fromkeys(row.accumulator for row in DTYPES.values()))

POWER = "which Triton needs"
MAX_KERNELS = 10_000


TAGS: dict[type, str] = {str: "<text>", dict: "<map>", list: "<list>"}
"""The branches of unions; pydantic puts them into the path to an error."""


class Model(BaseModel):
    """What all maps of a spec share; `title` is the word for one in messages."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


def _key(description: str, *examples: Any) -> Any:
    """A key that may be left out; `None`, which no file can give, says that it was."""
    return Field(default=None, description=description, examples=list(examples))


def _required(description: str, *examples: Any) -> Any:
    return Field(description=description, examples=list(examples))


def _shape(value: object) -> str | None:
    """The branch of a union that the user meant."""
    return TAGS.get(type(value))


def _either(says: str) -> Discriminator:
    return Discriminator(
        _shape, custom_error_type="shape", custom_error_message=says
    )  # fmt: skip


_DTYPE = Choice("dtype", tuple(DTYPES), partial(unknown_dtype, "dtype", tuple(DTYPES)))
_ACCUMULATOR = Choice(
    "accumulator", ACCUMULATORS, partial(unknown_dtype, "accumulator", ACCUMULATORS)
)
DtypeName: TypeAlias = Annotated[str, _DTYPE]
OptionalDtype: TypeAlias = Annotated[str | None, _DTYPE]
StepName: TypeAlias = Annotated[str, Choice("epilogue step", STEPS)]
OutputName: TypeAlias = Annotated[str, Identifier("output")]
OperandName: TypeAlias = Annotated[str, Identifier("operand")]
ScheduleName: TypeAlias = Annotated[str, Choice("schedule", tuple(SCHEDULES))]
TargetName: TypeAlias = Annotated[
    str, Choice("target", tuple(NAMES), unknown_target, SHOWN)
]


class DtypeMap(Model):
    """Element types, one by one."""

    model_config = ConfigDict(title="dtype")

    a: DtypeName = _required("Type of A.", "bf16")
    b: OptionalDtype = _key("Type of B; default: a.", "bf16")
    acc: Annotated[str | None, _ACCUMULATOR] = _key("Type of the sum over K.", "fp32")
    out: OptionalDtype = _key("Type of the result; default: a.", "fp32")


def _in_tile(name: str, least: int, power: str | None = None, **more: Any) -> Whole:
    return Whole(f"tile {name}", least, MOST_OF_TILES[name], power, **more)


class Tile(Model):
    """The part of C that one program computes; what is left out is computed."""

    model_config = ConfigDict(title="tile")

    m: Annotated[int, _in_tile("m", 16, step=8)] = _required(
        "Rows of C in a tile: a power of two, or any multiple of 8 up to 256 with "
        "schedule: warp_specialized, whose warpgroups cut one side and compose the "
        "other.",
        128,
    )
    n: Annotated[int, _in_tile("n", 16, step=8)] = _required(
        "Columns of C in a tile: the same.", 256
    )
    k: Annotated[int, _in_tile("k", 16, POWER)] = _required(
        "Length of one step along K.", 64
    )
    group_m: Annotated[int | None, _in_tile("group_m", 1)] = _key(
        "Rows of tiles that run together to share the L2 cache.", 8
    )
    stages: Annotated[int | None, _in_tile("stages", 1)] = _key(
        "Steps along K in flight.", 4
    )
    warps: Annotated[int | None, _in_tile("warps", 1, POWER, beside=(12,))] = _key(
        "Warps of a program; 12 with schedule: warp_specialized.", 8
    )
    split_k: Annotated[int | None, _in_tile("split_k", 1)] = _key(
        "Parts that K is cut into.", 4
    )


Dtype: TypeAlias = Annotated[
    Annotated[DtypeName, Tag("<text>")] | Annotated[DtypeMap, Tag("<map>")],
    _either("dtype must be a name or a map with a, b, acc, out"),
]
Epilogue: TypeAlias = Annotated[
    Annotated[str, Tag("<text>")]
    | Annotated[list[StepName], Several("epilogue", 0, repeats=True), Tag("<list>")],
    _either("epilogue must be an expression or a list of steps"),
]
Outputs: TypeAlias = Annotated[
    Annotated[list[OutputName], Several("outputs"), Tag("<list>")]
    | Annotated[dict[OutputName, DtypeName], Several("outputs"), Tag("<map>")],
    _either("outputs must be a list of names or a map from names to dtypes"),
]
TILES_RULE = "tiles must be a map with m, n, k, a list of such maps, or auto"
Tiles: TypeAlias = Annotated[
    Annotated[str, Exactly(AUTO, TILES_RULE), Tag("<text>")]
    | Annotated[Tile, Tag("<map>")]
    | Annotated[list[Tile], Several("tiles"), Tag("<list>")],
    _either(TILES_RULE),
]
Schedule: TypeAlias = Annotated[
    Annotated[str, Choice("schedule", (AUTO, *SCHEDULES)), Tag("<text>")]
    | Annotated[list[ScheduleName], Several("schedule"), Tag("<list>")],
    _either("schedule must be auto, a name, or a list of names"),
]


class Settings(Model):
    """Keys that every kernel takes unless it sets them itself."""

    model_config = ConfigDict(title="defaults")

    op: Annotated[str, Choice("op", tuple(OPERATIONS))] = _key(
        "What is computed.", "linear"
    )
    dtype: Dtype = _key(
        "Element type, or one each of a, b, acc and out.",
        *("bf16", {"a": "fp16", "out": "fp32"}),
    )
    precision: Annotated[str, Choice("precision", tuple(PRECISIONS))] = _key(
        "How fp32 is multiplied; default: ieee.", "tf32x3"
    )
    layout: Annotated[str, Choice("layout", tuple(LAYOUTS))] = _key(
        "Whether A and B are passed as they are (N) or transposed (T).", "NT"
    )
    scaling: Annotated[str, Choice("scaling", tuple(SCALINGS))] = _key(
        "Scales of fp8 and int8 inputs; default: none.", "row"
    )
    epilogue: Epilogue = _key(
        "What becomes of the product acc; default: acc.",
        *("gelu(acc + bias[n])", ["bias", "gelu", "residual"]),
    )
    operands: Annotated[dict[OperandName, DtypeName], Several("operands", 0)] = _key(
        "Types of the epilogue's operands; default: the out type.", {"bias": "fp32"}
    )
    outputs: Outputs = _key(
        "Statements of the epilogue that are returned; default: the last.",
        *(["out", "pre"], {"out": "bf16", "pre": "fp32"}),
    )
    tiles: Tiles = _key(
        "One tile, several to choose from, or auto, the default.",
        *("auto", {"m": 128, "n": 256, "k": 64}),
    )
    schedule: Schedule = _key(
        "auto, the default, a name, or names to choose from.",
        *("auto", ["tiled", "persistent"]),
    )
    autotune: Annotated[str, Exactly("runtime", "autotune must be runtime")] = _key(
        "Time the listed tiles on the first call.", "runtime"
    )
    batch_invariant: Annotated[bool, Flag("batch_invariant")] = _key(
        "A row's result never depends on the other rows.", True
    )
    grad: Annotated[bool, Flag("grad")] = _key(
        "Generate the backward too: gradients of all tensors.", True
    )
    grad_accumulate: Annotated[bool, Flag("grad_accumulate")] = _key(
        "Add a weight's gradient to its main_grad, if it has one.", True
    )
    module: Annotated[bool, Flag("module")] = _key(
        "Generate an nn.Module too, with the parameters of nn.Linear.", True
    )


class _Lists(Model):
    model_config = ConfigDict(title="for_each")


def _lists() -> dict[str, Any]:
    """A list of values for each key of `Settings`."""
    hints = get_type_hints(Settings, include_extras=True)
    return {
        key: (
            Annotated[list[hints[key]], Several(f"for_each {key}", 1, MAX_KERNELS)],  # type: ignore
            _key(f"Values of {key}: {field.description}"),
        )
        for key, field in Settings.model_fields.items()
    }


ForEach: type[Model] = create_model(
    "ForEach",
    __base__=_Lists,
    __doc__="Lists of values: one kernel for each combination.",
    **_lists(),
)


class Kernel(Settings):
    """One kernel, or with for_each a family of them."""

    model_config = ConfigDict(title="kernel")

    name: str = _required(
        "Name of module, launcher and kernel; {key} stands for a value of for_each.",
        *("mlp_up", "gemm_{layout}_{dtype}"),
    )
    for_each: ForEach = _key(  # type: ignore[valid-type]
        "Lists of values: one kernel for each combination.",
        {"layout": ["NN", "NT"], "dtype": ["fp16", "bf16"]},
    )


class File(Model):
    """A gemmgen spec: kernels to generate."""

    model_config = ConfigDict(title="spec")

    gemmgen: Annotated[int, Exactly(VERSION, "gemmgen must be the number 1")] = (
        _required("Version of the language.", VERSION)
    )
    targets: Annotated[list[TargetName], Several("targets")] = _key(
        "Architectures that every kernel must compile for.", ["sm_80", "sm_90"]
    )
    defaults: Settings = _key(
        "Keys that every kernel takes unless it sets them itself.", {"dtype": "bf16"}
    )
    kernels: Annotated[list[Kernel], Several("kernels", 1, MAX_KERNELS, True)] = (
        _required(
            "The kernels, in order.",
            [{"name": "mlp_up", "op": "linear", "dtype": "bf16"}],
        )
    )


class _Draft7(GenerateJsonSchema):
    """What editors read: no titles but those of maps, no default of our own."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: Any) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a spec file, in the part of draft 7 that editors know."""
    schema = File.model_json_schema(
        ref_template="#/definitions/{model}", schema_generator=_Draft7
    )
    definitions = schema.pop("$defs")
    whole = {**schema, "definitions": definitions}
    return {"$schema": "http://json-schema.org/draft-07/schema#", **_readable(whole)}


def _readable(schema: Any) -> Any:
    """The schema with each `$ref` alone: draft 7 ignores whatever stands beside it."""
    if isinstance(schema, list):
        return [_readable(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    rest = {key: _readable(one) for key, one in schema.items() if key != "$ref"}
    if "$ref" not in schema:
        return rest
    reference = {"$ref": schema["$ref"]}
    return {"allOf": [reference], **rest} if rest else reference
