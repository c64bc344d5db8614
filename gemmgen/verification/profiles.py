"""How much verification does, by the names that users choose from."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """How much is tried: drawn examples for each tile, and seconds for a kernel.

    A `fixed_seed` draws the same examples in every run that names no other.
    """

    examples: int
    seconds: float
    fixed_seed: bool = False
    climbs: bool = False


PROFILES = {
    "quick": Profile(20, 600),
    "ci": Profile(100, 1800, fixed_seed=True),
    "deep": Profile(2000, 4 * 3600, climbs=True),
}
