"""The files of an output folder: a folder a kernel, and one that all share."""

from typing import TYPE_CHECKING

from gemmgen.base.names import class_name
from gemmgen.problem.derived import derived_parts, part_name
from gemmgen.schedules import SCHEDULES

if TYPE_CHECKING:
    from gemmgen.select.plan import Plan

RUNTIME = "_runtime"
"""The folder of what all launchers share."""
ROLES = tuple(
    f"{RUNTIME}/pipeline/{name}.py"
    for name in (
        *("clusters", "blocks", "sums", "parts", "wgmma"),
        *("producer", "consumer", "roles"),
    )
)
"""What warp-specialized kernels share..."""
SIMT = f"{RUNTIME}/pipeline/simt.py"
"""... and what those of multiply-adds do."""
LAUNCHER, TILES, EPILOGUE = "__init__", "tiles", "epilogue"
"""The files of a kernel that hold its launcher, the tiles that it chooses from, what
becomes of a tile's sum."""
BACKWARD, GRAD_EPILOGUE = "backward", "grad_epilogue"
"""Those that hold its backward, and the kernel of this that is no product."""
MODULE = "module"
"""The one that holds its nn.Module."""


def shared(plan: "Plan", module: str) -> str:
    """How a kernel's file names a module that all launchers share."""
    return "." * (2 + plan.folder.count("/")) + f"{RUNTIME}.{module}"


def stems(plan: "Plan") -> list[str]:
    """The files of a kernel's folder, without `.py`.

    Launcher, tiles, epilogue and backward if there are such, those of schedules.
    """
    first, *others = always(plan)
    return [first, *([TILES] if plan.rows else []), *others, *plan.files]


def always(plan: "Plan") -> list[str]:
    """The files of a kernel's folder that it has whatever its tiles are."""
    backward = plan.backward
    return [
        LAUNCHER,
        *([] if plan.epilogue.is_empty else [EPILOGUE]),
        *([] if backward is None else [BACKWARD]),
        *([GRAD_EPILOGUE] if backward and backward.passed else []),
        *([MODULE] if plan.module else []),
    ]


def parts_of(plan: "Plan") -> dict[str, str]:
    """The folders of what a kernel's backward is made of, each with its launcher."""
    if plan.backward is None:
        return {}
    names = derived_parts(plan.backward)
    return {name: part_name(plan.name, name) for name in names}


def file_of(plan: "Plan", stem: str = LAUNCHER) -> str:
    """The name of a kernel's file in the output folder."""
    return f"{plan.folder}/{stem}.py"


def public(kernel: str, stem: str) -> str:
    """What others take from one of a kernel's files."""
    named = {LAUNCHER: kernel, TILES: TILES.upper(), EPILOGUE: EPILOGUE}
    named |= {BACKWARD: BACKWARD, GRAD_EPILOGUE: GRAD_EPILOGUE.upper()}
    named |= {MODULE: class_name(kernel)}
    return named.get(stem) or kernel + SCHEDULES[stem].kernel_suffix


def header_name(name: str) -> str:
    """What the header of a file of this name calls it.

    The file of a launcher goes by the kernel's name.
    """
    return name.removesuffix(".py").removesuffix(f"/{LAUNCHER}")


def home(name: str) -> str:
    """The folder that a file lies in: a kernel's name, or that of what all share.

    Before kernels were folders, their files had their names.
    """
    return name.partition("/")[0].removesuffix(".py")


def is_launcher(name: str) -> bool:
    """Whether the file of a kernel is the one that is imported."""
    return name in (f"{home(name)}/{LAUNCHER}.py", f"{home(name)}.py")


def is_layer(name: str) -> bool:
    """Whether the file of a kernel is the one of its nn.Module."""
    return name == f"{home(name)}/{MODULE}.py"
