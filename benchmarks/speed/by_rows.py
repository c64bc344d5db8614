"""Draws heat maps of reports of `gemmgen bench`: kernels by rows, all in one.

    python benchmarks/speed/by_rows.py NAME REPORT.json...

Writes NAME.png and NAME.html: the geometric means of ratios to the best peer and of
shares of the roofline. The reports must be of one GPU and the same versions.
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from gemmgen.base import style  # noqa: E402
from gemmgen.benchmark import plots  # noqa: E402
from gemmgen.benchmark.page import as_html  # noqa: E402
from gemmgen.benchmark.reading import from_json, together  # noqa: E402


def main() -> None:
    """Read the reports, and write both files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", type=Path)
    parser.add_argument("reports", type=Path, nargs="+")
    asked = parser.parse_args()
    runs = [from_json(json.loads(path.read_text())) for path in asked.reports]
    report = together(runs)
    figure = plots.by_rows(report)
    if figure is None:
        parser.error("no kernel raced against a peer in these reports")
    style.save(figure, asked.name.with_suffix(".png"))
    page = asked.name.with_suffix(".html")
    page.write_text(as_html(report), encoding="utf-8")


if __name__ == "__main__":
    main()
