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
    Its `examples` may be a part of all that there are, which are `out_of` then.
    `notes` are what a user may want to know and is no fault. Of a check that runs
    kernels, `ran` are those of the `schedules` that did run, and `largest` the largest
    M, N and K.
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
    schedules: tuple[str, ...] = ()
    ran: tuple[str, ...] = ()
    largest: tuple[int, ...] = ()
    out_of: int = 0

    @classmethod
    def read(cls, plain: dict[str, Any]) -> "Outcome":
        """What `asdict` made of one, after a way through JSON."""
        lists = {key: tuple(one) for key, one in plain.items() if type(one) is list}
        return cls(**plain | lists)

    @property
    def compiled_only(self) -> list[str]:
        """The schedules that were compiled and did not run."""
        return [name for name in self.schedules if name not in self.ran]

    @property
    def ok(self) -> bool:
        """Whether the check passed."""
        return self.status == "passed"
