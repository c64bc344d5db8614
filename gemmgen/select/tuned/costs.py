"""What tiles cost on a GPU, and how tuning files have it."""

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field
from typing import NamedTuple

from gemmgen.base.errors import Mistakes, one_of
from gemmgen.cost.resources import programs_at_a_time
from gemmgen.cost.time import Sizes, row_starts
from gemmgen.hardware.targets import Target
from gemmgen.schedules import schedule_of
from gemmgen.schedules.parts.consumers import rows_along_k
from gemmgen.schedules.parts.tile import Product, Rates, Tile
from gemmgen.select.tuned.decision_list import Rule
from gemmgen.select.tuned.epilogues import (
    fetching,
    hides_epilogues,
    instructions,
    waiting,
)
from gemmgen.select.tuned.rules_text import read_rules, rules_text
from gemmgen.select.tuned.tile_text import format_tile
from gemmgen.select.tuned.tuning_values import check_keys, entries, positive, tile_of
from gemmgen.tables.dtypes import MMAS
from gemmgen.tables.layouts import LAYOUTS
from gemmgen.yaml.tree import Node

MOST = 16
"""Tiles that calls of a kernel choose from by their costs: the first it can have..."""
MOST_OF_CLUSTERS = 1
"""... and so many of clusters, which not every Triton launches."""


@dataclass(frozen=True)
class Cost:
    """Microseconds of a block of K, of a tile, and of a launch.

    `operation` is what an instruction of the epilogue for each element of a warp adds
    to a tile. Where consumers take turns with tiles it adds to the launch: one computes
    an epilogue while another multiplies, but for the last.
    """

    block: float
    once: float
    launch: float
    operation: float

    def beside_blocks(self, tile: Tile, product: Product) -> tuple[float, float]:
        """Microseconds of a tile and of a launch, with the product's epilogue."""
        epilogue = self.operation * instructions(tile, product)
        launch = self.launch + fetching(tile, product)
        if hides_epilogues(tile):
            return self.once, launch + epilogue
        return self.once + epilogue, launch


class Timed(NamedTuple):
    """Microseconds of a tile of one kernel, its epilogue included, and the rates.

    An SM runs so many of its programs at a time.
    """

    block: float
    once: float
    launch: float
    resident: int
    rates: Rates

    def fastest(
        self, tile: Tile, product: Product, sizes: Sizes, sms: int
    ) -> tuple[Tile, float]:
        """Of what the tile stands for the fastest, and its microseconds.

        As launchers reckon it for contiguous matrices.
        """
        starts = row_starts(sizes, product)
        own = tile.launched._replace(**self._asdict()).members()
        times = [one._replace(starts=starts).predicted(*sizes, sms) for one in own]
        least = min(times)
        return tile.members[times.index(least)], least

    def predicted(self, tile: Tile, product: Product, sizes: Sizes, sms: int) -> float:
        """Microseconds of the fastest."""
        return self.fastest(tile, product, sizes, sms)[1]


@dataclass(frozen=True)
class Costs:
    """What was fitted for a kind of product: rates of the GPU, and costs of tiles.

    `unaligned` are rules, by layout, for tensors that no descriptor can describe.
    """

    rates: Rates
    tiles: Mapping[Tile, Cost]
    unaligned: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)

    def timed(
        self, tile: Tile, product: Product, target: Target, as_: Tile | None = None
    ) -> Timed:
        """What a tile of a product costs: as much as another that was timed, or it.

        The other has as many stages or more, and stands for as many others or more.
        """
        as_ = as_ or tile
        cost = self.tiles[as_]
        block = cost.block * as_.share(tile)
        if schedule_of(tile).persistent:
            block *= waiting(tile, as_, cost.block, product, target)
        once, launch = cost.beside_blocks(tile, product)
        programs = programs_at_a_time(tile, product, target)
        rates = rates_of(product, self.rates)
        return Timed(block, once, launch, programs, rates)

    def fastest(
        self, tile: Tile, product: Product, target: Target, sizes: Sizes
    ) -> tuple[Tile, float]:
        """Of what a tile stands for the fastest, and its microseconds."""
        timed = self.timed(tile, product, target)
        return timed.fastest(tile, product, sizes, target.sms)


def costed_as(product: Product) -> str | None:
    """The kind whose costs are the product's; there are none of several right sides.

    Tiles whose sides are multiplied in one have costs of their own.
    """
    if product.rights > 1:
        return None
    return kind_of(product) + _IN_ONE * rows_along_k(product)


def costs_for(costs: Mapping[str, Costs], kind: str | None) -> Costs | None:
    """Those of a kind; where sides in one have none, those of the same in pieces."""
    if kind is None:
        return None
    return costs.get(kind) or costs_beside(costs, kind)


def costs_beside(costs: Mapping[str, Costs], kind: str) -> Costs | None:
    """Those of the same products in pieces, of a kind that has its sides in one."""
    return costs.get(kind.removesuffix(_IN_ONE)) if kind.endswith(_IN_ONE) else None


def kind_of(product: Product) -> str:
    """The kind of a product, whose tiles cost the same: `bf16` for fp16 too."""
    made = MMAS.get(product.kind)
    return made.timed_as or made.name if made else product.kind


def rates_of(product: Product, rates: Rates) -> Rates:
    """The rates, with the bytes of a product's elements."""
    moved = max(product.out_bytes, product.tile_bytes)
    return rates._replace(element=product.bytes, result=moved)


_IN_ONE = "_along_k"
_KINDS = tuple(
    dict.fromkeys(
        (one.timed_as or one.name) + end
        for one in MMAS.values()
        for end in ("", _IN_ONE)
        if not end or not one.one_k_major
    )
)
_RATES = Rates._fields[2:]
"""Those of the GPU; the others are a kernel's."""


def costs_text(costs: Mapping[str, Costs]) -> Iterator[str]:
    """The lines of a tuning file."""
    for kind, each in costs.items():
        rates = (f"{name}: {getattr(each.rates, name):.4g}" for name in _RATES)
        yield f"  {kind}:"
        yield f"    rates: {{{', '.join(rates)}}}"
        yield "    tiles:"
        for tile, cost in each.tiles.items():
            numbers = ", ".join(f"{number:.4g}" for number in astuple(cost))
            yield f"      {format_tile(tile)}: [{numbers}]"
        if each.unaligned:
            yield "    unaligned:"
        for layout, rules in each.unaligned.items():
            yield f"      {layout}:"
            yield from (f"        {line}" for line in rules_text(rules))


def read_costs(node: Node, mistakes: Mistakes) -> dict[str, Costs]:
    """The costs by kind of product; what is wrong with them is noted."""
    found = {}
    for kind, each in entries(node, "costs", mistakes):
        if kind not in _KINDS:
            said = f"{kind!r} is no kind of product " + one_of(_KINDS)
            mistakes.add(node.keys[kind], said)
        if not check_keys(each, ("rates", "tiles", "unaligned"), mistakes):
            continue
        rates = each.at("rates")
        check_keys(rates, _RATES, mistakes)
        if lacking := [name for name in _RATES if name not in rates.entries]:
            said = f"the rates lack {', '.join(lacking)}: delete these costs, and "
            said += "`gemmgen tune` fits them to the times anew"
            mistakes.add(rates.location, said)
            continue
        numbers = [positive(rates.at(name), name, mistakes) for name in _RATES]
        tiles = dict(_costs_of(each.at("tiles"), mistakes))
        unaligned = dict(_unaligned_of(each.at("unaligned"), mistakes))
        found[kind] = Costs(Rates(0, 0, *numbers), tiles, unaligned)
    return found


def _unaligned_of(
    node: Node, mistakes: Mistakes
) -> Iterator[tuple[str, tuple[Rule, ...]]]:
    for layout, each in entries(node, "unaligned", mistakes):
        if layout not in LAYOUTS:
            said = f"{layout!r} is no layout " + one_of(LAYOUTS)
            mistakes.add(node.keys[layout], said)
        yield layout, tuple(rule for rule, _ in read_rules(each, mistakes))


def _costs_of(node: Node, mistakes: Mistakes) -> Iterator[tuple[Tile, Cost]]:
    names = tuple(Cost.__dataclass_fields__)
    for text, each in entries(node, "tiles", mistakes):
        tile = tile_of(text, node.keys[text], mistakes)
        if not isinstance(each.value, list) or len(each.items) != len(names):
            said = f"costs are a list of {len(names)} numbers: {', '.join(names)}"
            mistakes.add(each.location, said)
            continue
        pairs = zip(each.items, names, strict=True)
        numbers = [positive(item, name, mistakes) for item, name in pairs]
        if tile:
            yield tile, Cost(*numbers)
