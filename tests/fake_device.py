"""A device with a clock of its own, for races without a GPU."""

from collections.abc import Callable


class FakeDevice:
    """Calls take what they say; the CPU's clock moves by what they enqueue in.

    A call is made by `call`. `drift` multiplies every time with each call that was
    timed, as a GPU that gets warm does.
    """

    kind = "cpu"

    def __init__(self, drift: float = 1.0) -> None:
        self.clock = 0.0
        self.covered = 0.0
        self.log: list[str] = []
        self.drift = drift
        self.slowness = 1.0
        self.lasted = 0.0

    def call(self, name: str, gpu: float, cpu: float = 1e-6) -> Callable[[], object]:
        """A call of so many seconds on the GPU and the CPU."""

        def run() -> None:
            self.lasted = gpu * self.slowness
            self.clock += cpu
            self.log.append(name)

        return run

    def cover(self, seconds: float) -> None:
        self.covered = seconds

    def timed(self, call: Callable[[], object]) -> Callable[[], float]:
        self.lasted = 1e-6  # of a call that is not from `call`
        self.log.append("flush")
        call()
        seconds = self.lasted
        self.slowness *= self.drift
        self.clock += seconds + self.covered
        return lambda: seconds

    def synchronize(self) -> None:
        self.log.append("synchronize")

    def now(self) -> float:
        return self.clock
