"""What one check of one kernel came to."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """One check: `status` is passed, failed, crashed, timed out or error.

    `worst` is the largest error seen, in parts of the bound; `detail` says what is
    wrong and how to see it again, and is empty for a check that passed.
    """

    kernel: str
    check: str
    device: str
    status: str
    detail: str = ""
    examples: int = 0
    worst: float = 0.0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the check passed."""
        return self.status == "passed"
