"""Generated kernels as tests read, change and write them."""

from collections.abc import Mapping
from pathlib import Path

from gemmgen.output import alone
from gemmgen.render import render
from gemmgen.render.names.parts import file_of, stems
from gemmgen.select.plan import Plan

ROOT = Path(__file__).resolve().parent.parent
GENERATED = ROOT / "generated"


def text_of(kernel: str, stem: str = "__init__") -> str:
    """A file of one of the repository's own kernels."""
    return (GENERATED / kernel / f"{stem}.py").read_text(encoding="utf-8")


def committed(plan: Plan) -> dict[str, str]:
    """The files of one of the repository's own kernels, and what launchers share."""
    files = {file_of(plan, stem): text_of(plan.name, stem) for stem in stems(plan)}
    return {**alone.shared_texts(), **files}


def rendered(plan: Plan, source: str = "spec.yaml") -> dict[str, str]:
    """The same of any kernel."""
    return {**alone.shared_texts(), **render.files(plan, source)}


def replaced(texts: Mapping[str, str], before: str, after: str) -> dict[str, str]:
    """The files with a text replaced wherever it stands, which it does somewhere."""
    assert any(before in text for text in texts.values()), f"no file has {before!r}"
    return {name: text.replace(before, after) for name, text in texts.items()}


def written(folder: Path, plan: Plan, texts: Mapping[str, str]) -> Path:
    """Write files to a folder; the launcher's."""
    alone.write(folder, texts)
    return folder / file_of(plan)
