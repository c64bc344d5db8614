"""Processes that tune together, each on a GPU of its own: who times which shapes.

They meet in the store of torchrun's job. The first has the tuning file, and gathers
what the others find.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from gemmgen.base.errors import EnvironmentMissing
from gemmgen.base.processes import Processes, started
from gemmgen.measurement.gpu import choose
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.tuned.tile_text import format_tile, parse_tile
from gemmgen.spec import shapes
from gemmgen.spec.shapes import Shape

_POLL_S = 0.05
"""How long to sleep between looks into the store: a wait in it hears no Ctrl-C."""

Task = tuple[str, Shape]
"""A kernel by its name, and a shape to time it at."""


class Found(NamedTuple):
    """What a process found out: the seconds of tiles, and why others have none."""

    name: str
    shape: Shape
    times: Mapping[Tile, float]
    left_out: Mapping[Tile, str]


class Team:
    """The processes of a job; one alone has no store, and nothing to wait for."""

    def __init__(self, processes: Processes, store: Any = None) -> None:
        self.processes, self.store = processes, store
        self.rank, self.size = processes.rank, processes.size
        self.received = dict.fromkeys(range(1, self.size), 0)
        self.sent = 0

    def choose_gpu(self) -> None:
        """Make this process's GPU the current one.

        Raise `EnvironmentMissing` unless each has one of its own, all of one kind.
        """
        if self.size == 1:
            return
        kind, own = choose(self.processes.local_rank)
        self._put(f"gpu {self.rank}", [kind, own])
        users = {} if self.rank else {own: 0}
        for rank in () if self.rank else self.received:
            other, own = self._await(f"gpu {rank}")
            if other != kind:
                both = f"process {rank} has an {other}, process 0 an {kind}"
                raise EnvironmentMissing(f"tune needs GPUs of one kind: {both}")
            if own in users:
                both = f"processes {users[own]} and {rank} have the same one"
                raise EnvironmentMissing(f"tune needs a GPU for each process: {both}")
            users[own] = rank

    def share(self, tasks: Sequence[Task]) -> list[Task]:
        """Those of the first process's tasks that are this one's: every so many."""
        if not self.rank:
            self._put("tasks", [(name, str(shape)) for name, shape in tasks])
            return [*tasks[:: self.size]]
        told = self._await("tasks")[self.rank :: self.size]
        return [(name, shapes.parse(shape)) for name, shape in told]

    def send(self, found: Found) -> None:
        """Tell the first process."""
        texts = [
            {format_tile(tile): said for tile, said in each.items()}
            for each in (found.times, found.left_out)
        ]
        self._put(f"{self.rank} {self.sent}", [found.name, str(found.shape), *texts])
        self.sent += 1

    def arrived(self) -> Iterator[Found]:
        """What has been sent since it was last asked."""
        for rank in self.received:
            while told := self._look(f"{rank} {self.received[rank]}"):
                self.received[rank] += 1
                name, shape, *texts = told
                times, left_out = (
                    {parse_tile(tile): said for tile, said in each.items()}
                    for each in texts
                )
                yield Found(name, shapes.parse(shape), times, left_out)

    def rest(self) -> None:
        """Wait a little for others; `EnvironmentMissing` if one of them has failed."""
        if why := self._look("failed"):
            raise EnvironmentMissing(f"tune: another process has failed: {why}")
        time.sleep(_POLL_S)

    def fail(self, error: BaseException) -> None:
        """Let no other process wait for this one."""
        with suppress(EnvironmentMissing):  # there may be nobody left to tell
            said = str(error) or type(error).__name__
            self._put("failed", f"process {self.rank}: {said}")

    def _put(self, key: str, value: Any) -> None:
        if self.store is not None:
            with reached():
                self.store.set(key, json.dumps(value))

    def _look(self, key: str) -> Any:
        if self.store is None:
            return None
        with reached():
            there = self.store.check([key])
            return json.loads(self.store.get(key)) if there else None

    def _await(self, key: str) -> Any:
        while (found := self._look(key)) is None:
            self.rest()
        return found


@contextmanager
def gathered() -> Iterator[Team]:
    """The processes that this command was started as."""
    processes = started()
    team = Team(processes, _store() if processes.size > 1 else None)
    try:
        yield team
    except BaseException as error:
        team.fail(error)
        raise


@contextmanager
def reached() -> Iterator[None]:
    """Raise `EnvironmentMissing` where the store of a job is not there, or is gone."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        first, *_ = str(error).splitlines()
        said = f"tune cannot reach the processes that it was started with: {first}"
        raise EnvironmentMissing(said) from None


def _store() -> Any:
    """Where the processes of a job meet."""
    import torch.distributed as dist

    with reached():
        store, *_ = next(iter(dist.rendezvous("env://")))
        return dist.PrefixStore("gemmgen tune", store)
