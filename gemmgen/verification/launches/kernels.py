"""That each launch is of the kernel which it should be, for the sizes that it has."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from threading import Event, Thread
from typing import Any
from unittest.mock import patch

from gemmgen.verification.example import subject
from gemmgen.verification.example.one_example import Wrong
from gemmgen.verification.launches.bench import Bench
from gemmgen.verification.stand_in.record import named

_UNFUSED = {"TRITON_DEFAULT_FP_FUSION": "0"}
_SIDES = {"BLOCK_M": "m", "BLOCK_N": "n", "BLOCK_K": "k", "GROUP_M": "group_m"}
"""What of a tile its constants are."""


def kernels(bench: Bench) -> Iterator[tuple[str, Callable[[], None]]]:
    """Everything that is tried, by name."""
    for one in (
        _serves_schedules,
        _tells_tiles_apart,
        _tells_kernels_apart,
        _tells_widths_apart,
        _races_tiles,
        _launches_beside_others,
    ):
        yield str(one.__doc__), partial(one, bench)


def kinds(bench: Bench) -> list[Any]:
    """A tile of each schedule, and one of a cluster."""
    tiles = getattr(bench.module, "TILES", ())
    return list({(one.schedule, one.ctas): one for one in tiles}.values())


def _serves_schedules(bench: Bench) -> None:
    """Every schedule of the table is launched as it should be."""
    bench.renew()
    for row in kinds(bench):
        with bench.only(row):
            for _ in range(3):
                call = bench.call(bench.usual)
                for one in bench.check(bench.usual, call, []).launches:
                    if row.split_k > 1 and one.grid[1] != row.split_k:
                        raise Wrong(f"{row.split_k} parts of K are {one.grid[1]}")
                    ctas = one.function.compiled.metadata.num_ctas
                    if ctas != row.ctas:
                        raise Wrong(f"a tile of {row.ctas} CTAs is launched in {ctas}")
                    group = named(one).get("GROUP_M", row.group_m)
                    if group != row.group_m:
                        raise Wrong(
                            f"{row.group_m} rows of tiles are taken for {group}"
                        )


def _tells_tiles_apart(bench: Bench) -> None:
    """Tiles that differ in warps or stages are other kernels, fused by no default."""
    if bench.plan.configs:
        return
    bench.renew()
    first = bench.module.TILES[-1]
    deeper = first._replace(stages=first.stages + 1)
    other = first._replace(warps=first.warps ^ 12)
    call = bench.call(bench.usual)
    for tile in (first, deeper, other, first):
        with bench.only(tile), patch.dict(os.environ, _UNFUSED):
            for one in bench.check(bench.usual, call, []).launches:
                options = one.function.compiled.options
                found = options["num_warps"], options["num_stages"]
                if not options["enable_fp_fusion"]:
                    raise Wrong("product and sum are fused by default alone")
                if found != (tile.warps, tile.stages):
                    raise Wrong(f"{tile} is compiled for warps and stages {found}")


def _tells_kernels_apart(bench: Bench) -> None:
    """Kernels of one folder that take the same launch their own."""
    if bench.plan.configs:
        return
    bench.renew()
    other = subject.again(bench.module)
    theirs = getattr(other, bench.plan.name)
    call = bench.call(bench.usual)
    for module, launcher in ((bench.module, bench.plain), (other, theirs)) * 2:
        for one in bench.perform(launcher, bench.usual, call).launches:
            modules = subject.parts(bench.plan, module)
            kernels = [kernel for own in modules for kernel in vars(own).values()]
            if one.function.compiled.src.fn not in kernels:
                raise Wrong("the kernel of another module of the folder is launched")


def _tells_widths_apart(bench: Bench) -> None:
    """Sizes and steps of 2^31 are passed as what they are, and offsets of so many."""
    for axis in ("rows", "n", "k"):
        bench.renew()
        for size in (2**31 - 16, 2**31, 2**31 - 16, 2**31, 2**28):
            few: dict[str, Any] = {"rows": (16,), "n": 16, "k": 16}
            few[axis] = (size,) if axis == "rows" else size
            facts = replace(bench.usual, **few)
            bench.check(facts, bench.call(facts), [])
    if bench.plan.contraction.lhs.transposed:
        return
    name, facts = bench.plan.contraction.lhs.name, replace(bench.usual, rows=(1,))
    for step in (2**31 - 16, 2**31, 2**31 - 16):  # of a single row, which takes none
        call = bench.call(facts)
        given = call.inputs[name]
        call.inputs[name] = given.as_strided(given.shape, (step, 1))
        bench.check(facts, call, [])


def _races_tiles(bench: Bench) -> None:
    """An autotuner chooses among the plan's tiles, with their warps and stages."""
    for own in bench.module.LAUNCHES.arguments.values() if bench.plan.configs else ():
        found = [one.all_kwargs() for one in own.kernel.configs]
        for config, tile in zip(found, bench.plan.configs, strict=True):
            wanted = {"num_warps": tile.warps, "num_stages": tile.stages}
            wanted |= {name: getattr(tile, of) for name, of in _SIDES.items()}
            if {name: config.get(name) for name in wanted} != wanted:
                raise Wrong(f"{tile} is raced as {config}")


def _launches_beside_others(bench: Bench) -> None:
    """A thread that asks for shapes alone keeps no other from launching."""
    bench.renew()
    asks, asked = Event(), Event()

    def ask() -> None:
        with subject.runtime(bench.module, "support").dry_run():
            asks.set()
            asked.wait()

    thread = Thread(target=ask)
    thread.start()
    asks.wait()
    try:
        made = bench.perform(bench.plain, bench.usual, bench.call(bench.usual))
    finally:
        asked.set()
        thread.join()
    if not made.launches:
        raise Wrong("a call launches nothing, while another thread asks for shapes")
