"""Rows of text in columns as wide as they need."""

from collections.abc import Mapping, Sequence


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows under their keys, in columns as wide as they need; for people."""
    if not rows:
        return ""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    lines = [keys, *([row.get(key, "") for key in keys] for row in rows)]
    widths = {
        key: max(len(line[column]) for line in lines) for column, key in enumerate(keys)
    }
    return "\n".join(
        "  ".join(
            cell.ljust(widths[key]) for key, cell in zip(keys, line, strict=True)
        ).rstrip()
        for line in lines
    )
