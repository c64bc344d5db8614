"""Table of GPUs by their common names: a spec may name one for its architecture."""

import re

from gemmgen.base.errors import one_of, quoted
from gemmgen.hardware.targets import TARGETS

GPUS: dict[str, int] = {
    **dict.fromkeys(("a30", "a100", "a800"), 80),
    **dict.fromkeys(("a2", "a10", "a10g", "a16", "a40"), 86),
    **dict.fromkeys(("rtxa2000", "rtxa4000", "rtxa5000", "rtxa6000"), 86),
    **dict.fromkeys(("rtx3060", "rtx3070", "rtx3080", "rtx3090"), 86),
    **dict.fromkeys(("l4", "l20", "l40", "l40s"), 89),
    **dict.fromkeys(("rtx4060", "rtx4070", "rtx4080", "rtx4090", "rtx6000ada"), 89),
    **dict.fromkeys(("h20", "h100", "h200", "h800", "gh200"), 90),
    **dict.fromkeys(("b100", "b200", "gb200"), 100),
    **dict.fromkeys(("b300", "gb300"), 103),
    **dict.fromkeys(("rtx5060", "rtx5070", "rtx5080", "rtx5090", "rtxpro6000"), 120),
    "gb10": 121,
}
"""Compute capability, 10 * major + minor (developer.nvidia.com/cuda-gpus)."""


def _serving(capability: int) -> str | None:
    """The target that a GPU runs: the newest of its family that is not newer."""
    found = [
        row
        for row in TARGETS.values()
        if row.architecture // 10 == capability // 10 and row.architecture <= capability
    ]
    return max(found, key=lambda row: row.architecture).name if found else None


NAMES: dict[str, str] = {
    **{name: name for name in TARGETS},
    **{
        gpu: target
        for gpu, capability in GPUS.items()
        if (target := _serving(capability)) is not None
    },
}
"""Every name of a target, and the target; a GPU that none serves has none."""


SHOWN = (*TARGETS, "a GPU such as h100")
"""What messages list."""


def target_named(name: str) -> str | None:
    """The target that an architecture's or a GPU's name means."""
    return NAMES.get(name)


def unknown_target(name: str) -> str:
    """The message for any other name; it suggests no other architecture."""
    plain = re.sub("[^a-z0-9]", "", name.lower())
    number = re.fullmatch(r"(?:sm|compute|cc)?([0-9]{2,3})[af]?", plain)
    allowed = one_of(SHOWN)
    meant = [one for one in (plain, f"sm_{number and number[1]}") if one in NAMES]
    if not meant and plain in GPUS:
        return f"no target serves {quoted(name)}, which is sm_{GPUS[plain]} {allowed}"
    hint = f"; did you mean '{meant[0]}'?" if meant else ""
    return f"unknown target {quoted(name)}{hint} {allowed}"
