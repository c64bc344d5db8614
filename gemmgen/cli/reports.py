"""The files that `--report` writes, by their suffix."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemmgen.base.files import blamed

REPORTS: dict[str, Callable[[Any], str]] = {
    ".json": lambda result: json.dumps(result.as_json(), indent=2) + "\n",
    ".md": lambda result: result.as_markdown(),
    ".xml": lambda result: result.as_junit(),
}

BENCH_REPORTS = (".json", ".md")


def write_report(path: Path | None, result: Any) -> None:
    """The file of `--report`, also of a run that was interrupted."""
    if path:
        with blamed("write", path):
            path.write_text(REPORTS[path.suffix](result), encoding="utf-8")
