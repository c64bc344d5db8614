"""One kernel under trial: a module of all candidates, checked and raced at a shape."""

import atexit
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from os import cpu_count
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from gemmgen.base.processes import started
from gemmgen.hardware.targets import Target
from gemmgen.measurement import Device, Problem, judge, problem, race
from gemmgen.output import alone
from gemmgen.schedules import SCHEDULES, described
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.plan import Plan
from gemmgen.select.table import Row, Table
from gemmgen.select.tuned.tile_text import format_tile
from gemmgen.spec.shapes import Shape
from gemmgen.tuning.trials.candidates import (
    AS_SLOW,
    KEPT,
    at_shape,
    candidates,
    launched,
)
from gemmgen.verification.example import subject

_FINALISTS = 8
_FIRST_S, _FINAL_S = 0.03, 0.1
"""Seconds of the first race, among all, and of that among the finalists."""

Call = Callable[[], Any]


class Trial:
    """A kernel with every candidate tile in its table.

    `left_out` says of tiles why they were not timed.
    """

    def __init__(self, plan: Plan, target: Target, device: Device) -> None:
        self.target = target
        self.device = device
        self.tiles = candidates(plan, target)
        rows = tuple(Row(target.architecture, None, None, tile) for tile in self.tiles)
        self.plan = replace(plan, tables=(Table(target.name, target.rates, rows, ()),))
        self.module = _module(self.plan)
        self.left_out: dict[Tile, str] = {}
        self.rows = dict(zip(self.tiles, self.module.TILES, strict=True))

    def race(self, shape: Shape, usual: Collection[Tile] = ()) -> Mapping[Tile, float]:
        """Seconds of the tiles that the model thinks best, all with right results.

        Those of `usual` ones too, whatever they take. Of tiles that make the same
        launch one is timed.
        """
        given = problem(self.plan, shape, self.device.kind)
        outs = given.outputs()
        able = self._able(given, outs)
        tiles = at_shape(self.tiles, self.plan, shape, self.target, able)
        launches: dict[Tile, Tile] = {}
        for one in dict.fromkeys([*usual, *tiles]):
            if subject.launches(self.module, one):
                launches.setdefault(launched(one, shape, self.target), one)
        calls = {tile: self._call(tile, given, outs) for tile in launches.values()}
        working = self._compiled(calls, aligned=len(able) == len(SCHEDULES))
        right = self._right(working, given, outs)
        if not right:
            return {}
        first = race(
            right, self.device, budget_s=_FIRST_S, least_rounds=5, warm_up_s=0.02
        )
        best = sorted(first, key=lambda tile: first[tile].median)
        slow = AS_SLOW * first[best[0]].median
        kept = [tile for tile in best[:KEPT] if first[tile].median <= slow]
        kept += [tile for tile in usual if tile in first and tile not in kept]
        final = race(
            {tile: right[tile] for tile in kept[:_FINALISTS]},
            self.device,
            budget_s=_FINAL_S,
            least_rounds=10,
            warm_up_s=0.02,
        )
        # The losers' times, on the scale of the final: clocks drift between races.
        drift = final[best[0]].median / first[best[0]].median
        return {tile: drift * first[tile].median for tile in kept} | {
            tile: timing.median for tile, timing in final.items()
        }

    def _able(self, given: Problem, outs: tuple[torch.Tensor, ...]) -> list[str]:
        """The schedules whose descriptors can describe these tensors."""
        plan, tensors = self.plan, given.tensors
        by_role = {
            "inputs": [tensors[one.name] for one in plan.contraction.inputs],
            "operands": [
                tensors[tensor.name] for tensor in plan.tensors if tensor.is_matrix
            ],
            "results": outs,
        }
        return [
            name
            for name in SCHEDULES
            if all(
                self._table.tma_compatible(matrix)
                for role in described(name, plan.product.kind)
                for matrix in by_role[role]
            )
        ]

    @property
    def _table(self) -> ModuleType:
        return subject.runtime(self.module, "table")

    def _call(self, tile: Tile, given: Problem, outs: tuple[torch.Tensor, ...]) -> Call:
        """Launch one tile and return the compiled kernel."""
        own = self.module.LAUNCHES.arguments[tile.schedule]
        sizes = given.shape.sizes

        def call() -> Any:
            tensors = (*given.arguments, *outs)
            return own.launch(self.rows[tile], sizes, tensors).enter()

        return call

    def _compiled(
        self, calls: Mapping[Tile, Call], *, aligned: bool
    ) -> dict[Tile, Call]:
        """Those that compile without a spill and run, compiled side by side.

        What fails beside others is tried again alone before it is left out. Where rows
        are not aligned, the time says enough of spills.
        """
        found_by = partial(_problem, aligned=aligned)
        cores = max(1, (cpu_count() or 1) // started().local_size)
        with ThreadPoolExecutor(cores) as pool:
            found = dict(zip(calls, pool.map(found_by, calls.values()), strict=True))
        self.device.synchronize()
        working = {}
        for tile, problem_ in found.items():
            said = problem_ and found_by(calls[tile])
            if said:
                self.left_out[tile] = said
            else:
                working[tile] = calls[tile]
        return working

    def _right(
        self, calls: Mapping[Tile, Call], given: Problem, outs: tuple[torch.Tensor, ...]
    ) -> dict[Tile, Call]:
        """Those whose results are within the bound, from outputs full of NaN."""
        results = {}
        for tile, call in calls.items():
            for out in outs:
                out.fill_(torch.nan)
            # Tiles that differ in parts alone share a kernel, of which another thread
            # may have kept a compilation that fails.
            if said := _problem(call, aligned=False):
                self.left_out[tile] = said
            else:
                results[tile] = tuple(out.clone() for out in outs)
        named = {format_tile(tile): made for tile, made in results.items()}
        right = {}
        for tile, judgement in zip(results, judge(given, named).values(), strict=True):
            if judgement.outside:
                self.left_out[tile] = f"{judgement.outside} wrong elements"
            else:
                right[tile] = calls[tile]
        return right


def _problem(call: Call, *, aligned: bool) -> str:
    """Why a tile is no choice: it spills, or what Triton says; else nothing."""
    try:
        spilled = int(call().n_spills)
    except Exception as error:  # Triton raises many kinds
        return f"{type(error).__name__}: {error}".splitlines()[0][:120]
    return f"spills {spilled} registers" if spilled and aligned else ""


def _module(plan: Plan) -> ModuleType:
    """The rendered module, imported; its folder lasts as long as the process."""
    folder = Path(tempfile.mkdtemp(prefix="gemmgen-tune-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return subject.load(alone.written(folder, plan, "tune"))
