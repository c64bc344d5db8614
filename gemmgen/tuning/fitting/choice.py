"""A choice among few tiles: which of many to keep so that it loses least."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gemmgen.schedules.parts.tile import Tile

Numbers = Sequence[Sequence[float]]
"""For each shape one of each tile."""


class Choice:
    """The choice of the tile with the least time that is `predicted`, shape by shape.

    It costs what is `lost` with that tile there.
    """

    def __init__(self, tiles: Sequence[Tile], predicted: Numbers, lost: Numbers):
        self.places = {tile: place for place, tile in enumerate(tiles)}
        self.predicted = torch.tensor(predicted, dtype=torch.float64)
        self.lost = torch.tensor(lost, dtype=torch.float64)

    def grown(
        self, kept: Sequence[Tile], tiles: Sequence[Tile], number: int
    ) -> list[Tile]:
        """Those kept, and so many of the others that they are a number, one by one.

        Each time that with which the choice among all so far loses least.
        """
        grown = list(kept)
        while len(grown) < number and (
            others := [tile for tile in tiles if tile not in grown]
        ):
            losses = self._losses(grown)
            grown.append(min(others, key=lambda tile: losses[self.places[tile]]))
        return grown

    def exchanged(self, kept: Sequence[Tile], tiles: Sequence[Tile]) -> list[Tile]:
        """Those kept, each replaced by another of the tiles while that loses less."""
        kept, improved = list(kept), True
        while improved:
            improved = False
            for place, tile in enumerate(kept):
                losses = self._losses(kept[:place] + kept[place + 1 :])
                others = [each for each in tiles if each not in kept]
                best = min([tile, *others], key=lambda each: losses[self.places[each]])
                improved = improved or best != tile
                kept[place] = best
        return kept

    def _losses(self, kept: Sequence[Tile]) -> list[float]:
        """What is lost in all, with each of the tiles beside those kept."""
        if not kept:
            return self._sums(self.lost)
        places = torch.tensor([self.places[tile] for tile in kept])
        least, chosen = self.predicted[:, places].min(dim=1, keepdim=True)
        lost = self.lost.gather(1, places[chosen])
        return self._sums(torch.where(self.predicted < least, self.lost, lost))

    @staticmethod
    def _sums(lost: Tensor) -> list[float]:
        return [float(each) for each in lost.sum(dim=0)]
