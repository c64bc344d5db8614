"""A run as a page for a browser: heat maps whose cells say what is in them."""

from jinja2 import Environment

from gemmgen.benchmark.cells import RATIOS, SHARES, by_cells
from gemmgen.benchmark.results import Benchmark

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<title>gemmgen: speed by kernel and rows</title>
<style>
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; color: #222 }
table { border-collapse: collapse; margin-bottom: 2em }
th { font-weight: normal; text-align: left; padding: 2px 10px 2px 0 }
tbody th { white-space: nowrap }
thead th { font-size: 12px; color: #555; padding: 2px 6px }
td { text-align: center; padding: 2px 8px; min-width: 4em }
p { max-width: 50em; color: #444 }
</style>
</head>
<body>
<h1>Speed by kernel and rows</h1>
<p>{{ facts }}. Geometric means over the shapes of a kernel that have so many rows
(M); a cell says under the pointer how many, and where the lowest ratio is.</p>
{%- for title, scale, value in maps %}
<h2>{{ title }}</h2>
<table>
<thead><tr><th></th>
{%- for column in grid.columns %}<th>{{ column }}</th>{% endfor %}</tr></thead>
<tbody>
{%- for name, cells in grid.kernels.items() %}
<tr><th>{{ name }}</th>
{%- for column in grid.columns %}
{%- set cell = cells[column] %}
{%- if cell %}
<td style="background: {{ scale.colour(cell[value]) }}"
 title="{{ cell.shapes }} shape{{ 's' if cell.shapes > 1 }}, lowest ratio \
{{ '%.3f' % cell.lowest }} at {{ cell.at }}">{{ '%.2f' % cell[value] }}</td>
{%- else %}
<td></td>
{%- endif %}
{%- endfor %}</tr>
{%- endfor %}
</tbody>
</table>
{%- endfor %}
</body>
</html>
"""
_MAPS = (
    ("Time of the best peer / our time: above 1 ours is faster", RATIOS, "ratio"),
    ("Share of the roofline", SHARES, "share"),
)


def as_html(report: Benchmark) -> str:
    """The heat maps of a run, kernels by rows of A, as one file of HTML."""
    page = Environment(autoescape=True).from_string(_PAGE)
    facts = ", ".join(f"{key} {value}" for key, value in report.environment.items())
    return page.render(grid=by_cells(report), facts=facts, maps=_MAPS)
