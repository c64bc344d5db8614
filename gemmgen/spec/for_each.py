"""Defaults and `for_each`: the maps of a file → one draft a kernel.

A draft holds each setting with the node that it comes from. Checks names, and that
`for_each` makes sense; what the settings mean is for others.
"""

import keyword
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from gemmgen.base.errors import Mistakes, one_of, quoted
from gemmgen.base.names import class_name
from gemmgen.spec.names import why_not
from gemmgen.spec.schema import MAX_KERNELS, ForEach, Kernel, Model, Settings
from gemmgen.spec.validation import values
from gemmgen.yaml.tree import UNKNOWN, Node, Unknown


@dataclass(frozen=True)
class Setting:
    """A value and the node that says it; a value that was refused is `UNKNOWN`."""

    node: Node
    value: Any


@dataclass(frozen=True)
class Draft:
    """One kernel: its name if it has one, its map, and the settings it was given."""

    name: str | None
    node: Node
    settings: Mapping[str, Setting]

    def node_of(self, key: str) -> Node:
        """The node that says `key`, or the kernel's whole map."""
        if key in self.settings:
            return self.settings[key].node
        return self.node.child(key) or self.node


def check_size(root: Node, mistakes: Mistakes) -> None:
    """Give up on a file that expands to too many kernels, before anything grows."""
    total = 0
    for node in root.at("kernels").items:
        lists = node.at("for_each").entries.values()
        total += math.prod(len(one.items) or 1 for one in lists)
        if total > MAX_KERNELS:
            message = f"spec expands to more than {MAX_KERNELS} kernels"
            mistakes.add(node.location, message)
            raise mistakes.errors()


def drafts(root: Node, mistakes: Mistakes) -> list[Draft]:
    """Every kernel of a file, in order; mistakes of names and for_each are added."""
    defaults = _settings(Settings, root.at("defaults"))
    found = [
        draft
        for node in root.at("kernels").items
        if isinstance(node.value, dict)
        for draft in _family(node, defaults, mistakes)
    ]
    _check_names(found, mistakes)
    _check_classes(found, mistakes)
    return found


def _settings(model: type[Model], node: Node) -> dict[str, Setting]:
    right = values(model, node)
    return {
        key: Setting(one, right.get(key, UNKNOWN))
        for key, one in node.entries.items()
        if key in Settings.model_fields
    }


def _family(
    node: Node, defaults: Mapping[str, Setting], mistakes: Mistakes
) -> Iterator[Draft]:
    """The drafts of one entry of `kernels`; none where for_each makes no sense."""
    if "for_each" in node.keys and not isinstance(node.at("for_each").value, dict):
        return
    own = _settings(Kernel, node)
    lists = _lists(node, mistakes)
    for combination in product(*lists.values()):
        chosen = dict(zip(lists, combination, strict=True))
        name = _name(node, chosen, mistakes)
        yield Draft(name, node, {**defaults, **own, **chosen})


def _lists(node: Node, mistakes: Mistakes) -> dict[str, list[Setting]]:
    """The lists of a kernel's for_each; one unknown setting for a wrong list."""
    for_each = node.at("for_each")
    right = values(ForEach, for_each)
    for key in for_each.entries:
        if key in node.keys and key in Settings.model_fields:
            message = f"{quoted(key)} is also set by the kernel, at {node.keys[key]}"
            mistakes.add(for_each.keys[key], message)
    return {
        key: (
            [Setting(*pair) for pair in zip(one.items, right[key], strict=True)]
            if key in right
            else [Setting(one, UNKNOWN)]
        )
        for key, one in for_each.entries.items()
    }


_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_LONGEST_TEMPLATE = 500


def _name(node: Node, chosen: Mapping[str, Setting], mistakes: Mistakes) -> str | None:
    """A kernel's name with the values of for_each filled in, if they can be."""
    written = node.at("name")
    if not isinstance(written.value, str):
        return None
    # Longer is refused in any case, and filled in thousands of times would be slow.
    if len(written.value) > _LONGEST_TEMPLATE:
        return written.value
    complete = True
    texts: dict[str, str] = {}
    for match in _PLACEHOLDER.finditer(written.value):
        value = chosen[match[1]].value if match[1] in chosen else None
        reason = _why_not_in_name(value, chosen)
        if reason:
            message = f"name holds {quoted(match[0])}, {reason}"
            mistakes.add(written.inside(match.start()), message)
        complete = complete and not reason and value is not UNKNOWN
        # No name of this length is allowed: the rest of a long text is not needed.
        texts[match[1]] = str(value)[:100].lower()
    return _PLACEHOLDER.sub(lambda m: texts[m[1]], written.value) if complete else None


def _why_not_in_name(value: object, chosen: Mapping[str, Setting]) -> str | None:
    if value is None and not chosen:
        return "but the kernel has no for_each"
    if value is None:
        listed = [key for key in chosen if key in Settings.model_fields]
        return f"which for_each does not list {one_of(listed)}"
    if not isinstance(value, str | int | float | Unknown):
        return "whose values are not plain: only text, numbers, true and false are"
    return None


def _check_names(found: Iterable[Draft], mistakes: Mistakes) -> None:
    """Every name must be possible, and no other kernel's."""
    first: dict[str, Draft] = {}
    for draft in found:
        if draft.name is None:
            continue
        place = draft.node_of("name").location
        reason = why_not(draft.name)
        other = first.setdefault(draft.name, draft)
        if reason:
            mistakes.add(place, reason)
        elif other is not draft:
            mistakes.add(place, _clash(draft, other))


_IN_MODULES = ("KernelLinear", "LazyPackage", "Tensor")


def _check_classes(found: Iterable[Draft], mistakes: Mistakes) -> None:
    """The class of a kernel with `module: true` must be possible, and its alone."""
    owners: dict[str, str] = {}
    for draft in found:
        asked = draft.settings.get("module")
        if draft.name is None or asked is None or asked.value is not True:
            continue
        name = class_name(draft.name)
        owner = owners.setdefault(name, draft.name)
        reason = ""
        if keyword.iskeyword(name) or name in _IN_MODULES:
            reason = "means something else in Python, or in what is generated"
        elif owner != draft.name:
            reason = f"is that of kernel {quoted(owner)} too: rename one"
        if reason:
            message = f"the module of kernel {quoted(draft.name)} has the name {name}, "
            mistakes.add(draft.node_of("name").location, f"{message}which {reason}")


def _clash(draft: Draft, other: Draft) -> str:
    name = quoted(draft.name or "")
    if draft.node is not other.node:
        return f"name {name} is already used at {other.node_of('name').location}"
    written = draft.node_of("name").value
    missing = [
        f"{{{key}}}"
        for key, one in draft.node.at("for_each").entries.items()
        if len(one.items) > 1 and f"{{{key}}}" not in str(written)
    ]
    needs = f"; its name needs {' and '.join(missing)}" if missing else ""
    return f"for_each makes several kernels named {name}{needs}"
