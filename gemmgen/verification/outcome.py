"""What one check of one kernel came to."""

from dataclasses import dataclass
from typing import Any

TIMED_OUT, OUT_OF_RESOURCES = "timed out", "out of resources"
STARVED = (TIMED_OUT, OUT_OF_RESOURCES)
"""What may become of a healthy kernel whose GPU has others to serve."""


@dataclass(frozen=True)
class Outcome:
    """One check: `status` is passed, failed (a wrong result), crashed, timed out, out
    of resources, compile error, or error (any other exception).

    `worst` is the largest error seen, in parts of the bound; `detail` says what is
    wrong and how to see it again; of a check that passed, what it set aside, if it did.
    `notes` are what a user may want to know and is no fault.
    """

    kernel: str
    check: str
    device: str
    status: str
    detail: str = ""
    examples: int = 0
    worst: float = 0.0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @classmethod
    def read(cls, plain: dict[str, Any]) -> "Outcome":
        """What `asdict` made of one, after a way through JSON."""
        return cls(**{**plain, "notes": tuple(plain["notes"])})

    @property
    def ok(self) -> bool:
        """Whether the check passed."""
        return self.status == "passed"
