"""How much verification does, by the names that users choose from."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """How much is tried: drawn examples for each tile, and seconds for a kernel.

    A kernel of few tiles has `least` examples all the same. A `fixed_seed` draws the
    same examples in every run that names no other.
    """

    examples: int
    least: int
    seconds: float
    fixed_seed: bool = False
    climbs: bool = False

    def examples_of(self, tiles: int) -> int:
        """The examples for each of so many tiles."""
        return max(self.examples, -(-self.least // tiles))


PROFILES = {
    "quick": Profile(5, 60, 600),
    "ci": Profile(25, 300, 1800, fixed_seed=True),
    "deep": Profile(500, 6000, 4 * 3600, climbs=True),
}
