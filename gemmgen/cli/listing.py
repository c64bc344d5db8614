"""What `gemmgen list` prints."""

import argparse

from gemmgen import api
from gemmgen.base.text_table import table
from gemmgen.cli import terminal
from gemmgen.render.docs import Description


def kernels(options: argparse.Namespace) -> int:
    """The kernels, expanded, a line each."""
    rows = [
        {
            "name": text.plan.name,
            "op": text.plan.op,
            "layout": text.plan.layout,
            "dtype": text.types,
            "epilogue": text.epilogue_in_spec,
            "tiles": _short(text.plan.tiles_text, options.format),
        }
        for text in map(Description, api.kernels(options.specs))
    ]
    if options.format == "json":
        terminal.emit_json("list", True, kernels=rows)
    else:
        print(table(rows))
    return 0


def compile_keys(options: argparse.Namespace) -> int:
    """What Triton compiles for each kernel: a line a tile, as JSON every key."""
    from gemmgen.render.compile_keys import by_tile

    found = api.compile_keys(options.specs)
    if options.format == "json":
        every = {name: [one.as_json() for one in keys] for name, keys in found.items()}
        terminal.emit_json("list", True, compile_keys=every)
        return 0
    print(table([row for name, keys in found.items() for row in by_tile(name, keys)]))
    count = sum(map(len, found.values()))
    print(
        f"\n{count} keys, for contiguous tensors at multiples of 16 bytes, and sizes "
        "below 2^31; 16: a multiple of it, any: another size"
    )
    return 0


def _short(tiles: str, form: str) -> str:
    """One tile in full; a list by its length, but for programs."""
    count = tiles.count("{")
    return tiles if form == "json" or count < 2 else f"{count} tiles"
