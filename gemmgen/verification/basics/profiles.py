"""How much verification does, by the names that users choose from."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """How much is tried: drawn examples for each tile, and seconds for a kernel.

    A kernel of few tiles has `least` examples all the same. A `fixed_seed` draws the
    same examples in every run that names no other. On a GPU a draw has up to `at_once`
    examples. `launches` are the drawn sequences of calls of a launcher, which
    has each, or one in `every`, of the changes of a call made alone. `climbs` seeks
    large errors, `remembers` tries first what failed before. All tiles are compiled, or
    of each schedule for each target the largest and so many that are drawn.
    """

    examples: int
    least: int
    seconds: float
    at_once: int
    launches: int
    every: int = 1
    compiled: int | None = None
    fixed_seed: bool = False
    climbs: bool = False
    remembers: bool = False

    def examples_of(self, tiles: int) -> int:
        """The examples for each of so many tiles."""
        return max(self.examples, -(-self.least // tiles))


PROFILES = {
    "quick": Profile(5, 60, 600, at_once=5, launches=5, every=3, compiled=1),
    "ci": Profile(25, 300, 1800, at_once=100, launches=50, fixed_seed=True),
    "deep": Profile(
        100, 3000, 4 * 3600, at_once=1000, launches=1000, climbs=True, remembers=True
    ),
}
