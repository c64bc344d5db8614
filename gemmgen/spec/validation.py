"""Holds a tree of nodes against the data model: located mistakes, and right values.

Words every mistake that the model can find; adds no rule of its own.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from gemmgen.base.errors import Location, Mistakes, describe_value, unknown
from gemmgen.spec.schema import (
    TAGS,
    DtypeMap,
    File,
    ForEach,
    Kernel,
    Model,
    Settings,
    Tile,
)
from gemmgen.yaml.tree import UNKNOWN, Node

_MODELS: dict[str | int, type[Model]] = {
    "defaults": Settings,
    "kernels": Kernel,
    "for_each": ForEach,
    "dtype": DtypeMap,
    "tiles": Tile,
}
"""The model of a map, by the last of these keys on the way to it."""


def check(root: Node, mistakes: Mistakes) -> None:
    """Add every mistake that the data model finds in a file."""
    try:
        File.model_validate(root.plain())
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            node, location = _locate(root, detail)
            if node.value is not UNKNOWN:
                mistakes.add(location, _wording(detail))


def values(model: type[Model], node: Node) -> dict[str, Any]:
    """The right values of a map by key; a key whose value is wrong is left out."""
    plain = node.plain()
    if not isinstance(plain, dict):
        return {}
    try:
        whole = model.model_validate(plain)
    except ValidationError:
        return dict(_right_values(model, plain))
    return {key: getattr(whole, key) for key in whole.model_fields_set}


def _right_values(
    model: type[Model], plain: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    for key in model.model_fields.keys() & plain.keys():
        try:
            yield key, _adapter(model, key).validate_python(plain[key], strict=True)
        except ValidationError:
            continue


@cache
def _adapter(model: type[Model], key: str) -> TypeAdapter[Any]:
    return TypeAdapter(get_type_hints(model, include_extras=True)[key])


def _locate(root: Node, detail: ErrorDetails) -> tuple[Node, Location]:
    """The node that an error is about, and the place to show."""
    around, node, key = root, root, ""
    for part in detail["loc"]:
        child = node.child(part)
        # No child: the part names a branch of a union, or a key that is missing.
        if child:
            around, node, key = node, child, str(part)
    if detail["type"] == "extra_forbidden" or detail["loc"][-1:] == ("[key]",):
        return around, around.keys[key]
    return node, node.location


def _wording(detail: ErrorDetails) -> str:
    context, value = detail.get("ctx", {}), detail["input"]
    match detail["type"]:
        case "kind":
            return str(context["kind"].wording(value))
        case "wrong":
            return str(context["says"])
        case "shape":
            return f"{detail['msg']}, not {describe_value(value)}"
        case "extra_forbidden":
            return unknown("key", str(detail["loc"][-1]), _model(detail).model_fields)
        case "missing":
            title = _model(detail).model_config["title"]
            return f"{title} has no '{detail['loc'][-1]}'"
    must = {
        "model_type": "a map",
        "dict_type": "a map",
        "list_type": "a list",
        "string_type": "text",
    }[detail["type"]]
    return f"{_noun(detail)} must be {must}, not {describe_value(value)}"


def _model(detail: ErrorDetails) -> type[Model]:
    """The model of the map that holds the key that an error is about."""
    keys = [part for part in detail["loc"][:-1] if part in _MODELS]
    return _MODELS[keys[-1]] if keys else File


def _noun(detail: ErrorDetails) -> str:
    """`tiles`, `tile` for one of them, `for_each dtype`: what an error is about."""
    path = [part for part in detail["loc"] if part not in TAGS.values()]
    keys = [part for part in path if isinstance(part, str)]
    if not keys:
        return "spec"
    if path[-1] != keys[-1]:
        return {"kernels": "kernel", "tiles": "tile"}.get(keys[-1], keys[-1])
    return " ".join(keys[-2:] if "for_each" in keys[:-1] else keys[-1:])
