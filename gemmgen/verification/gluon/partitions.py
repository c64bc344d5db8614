"""The partitions of a program as threads, of which one runs at a time.

They change places where they synchronize, in an order that choices decide, so that a
run repeats. Nothing here knows what they synchronize on.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from types import FrameType
from typing import Any

from gemmgen.verification.gluon.policies import Choices
from gemmgen.verification.memory.clocks import Clock, Moment
from gemmgen.verification.memory.misuse import Misuse, frame_here, place


class _Stopped(BaseException):
    """Ends a thread whose program has failed elsewhere."""


def _closed() -> threading.Lock:
    """What a thread waits for until another lets it go on, once for each time."""
    lock = threading.Lock()  # a semaphore takes five of them
    lock.acquire()
    return lock


class Partition:
    """Warps with one part of a program: what they know and have under way.

    They are of one CTA if the program is a cluster.
    """

    def __init__(
        self, number: int, name: str, warps: int, clock: Clock, cta: int = 0
    ) -> None:
        self.number = number
        self.cta = cta
        self.name = name
        self.warps = warps
        self.clock = Clock(clock)
        self.products: deque[Any] = deque()
        self.stores: deque[Any] = deque()
        self.issued = dict.fromkeys(("products", "stores", "copies", "accesses"), 0)
        self.ready: Callable[[], bool] | None = None
        self.waits_for: Callable[[], str] = str
        self.frame: FrameType | None = None
        self.done = False
        self.turn = _closed()

    def moment(self, kind: str) -> Moment:
        """The end of the next of a kind: products, stores, copies, plain accesses."""
        self.issued[kind] += 1
        return Moment((kind, self.number), self.issued[kind] - 1)

    def access(self) -> Moment:
        """A plain access, which is over for these warps at once."""
        found = self.moment("accesses")
        self.clock.learn(found)
        return found

    @property
    def held_up(self) -> str:
        """Where it waits and for what."""
        return f"{self.name} waits for {self.waits_for()} in {place(self.frame)}"


class Turns:
    """Lets one partition run at a time until all are done.

    `land` makes something happen that was under way, if anything is; `idle` may do so
    at any switch.
    """

    def __init__(
        self,
        partitions: Sequence[Partition],
        choices: Choices,
        land: Callable[[], bool],
        idle: Callable[[], None],
    ) -> None:
        self.partitions = partitions
        self.choices = choices
        self.land = land
        self.idle = idle
        self.running = partitions[0]
        self.failure: BaseException | None = None
        self.over = _closed()

    def run(self, bodies: Sequence[Callable[[], Any]]) -> None:
        """Run every partition's body to its end; raise the first failure."""
        threads = [
            threading.Thread(
                target=copy_context().run, args=(self._run, one, body), daemon=True
            )
            for one, body in zip(self.partitions, bodies, strict=True)
        ]
        for thread in threads:
            thread.start()
        self._hand_over(self.choices.next([one.number for one in self.partitions], -1))
        self.over.acquire()
        for thread in threads:
            thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self, partition: Partition, body: Callable[[], Any]) -> None:
        try:
            self._resume(partition)
            body()
            partition.done = True
            if all(one.done for one in self.partitions):
                self.over.release()
            else:
                self._hand_over(self._next(partition))
        except _Stopped:
            pass
        except BaseException as failure:
            self._fail(failure)

    def _fail(self, failure: BaseException) -> None:
        if self.failure is None:
            self.failure = failure
            for one in (*(one.turn for one in self.partitions), self.over):
                if one.locked():
                    one.release()

    def _hand_over(self, number: int) -> None:
        self.running = self.partitions[number]
        self.running.turn.release()

    def _resume(self, partition: Partition) -> None:
        partition.turn.acquire()
        if self.failure is not None:
            raise _Stopped

    def pause(self) -> None:
        """Let others run, if the choices say so."""
        me = self.running
        chosen = self._next(me)
        if chosen != me.number:
            self._hand_over(chosen)
            self._resume(me)

    def wait(self, ready: Callable[[], bool], what: Callable[[], str]) -> None:
        """Let others run until the one that runs now is ready to go on."""
        me = self.running
        me.ready, me.waits_for, me.frame = ready, what, frame_here()
        self.pause()
        me.ready = me.frame = None

    def _next(self, last: Partition) -> int:
        self.idle()
        while True:
            able = [
                one.number
                for one in self.partitions
                if not one.done and (one.ready is None or one.ready())
            ]
            if able:
                return self.choices.next(able, last.number)
            if not self.land():
                raise self._deadlock()

    def _deadlock(self) -> Misuse:
        stuck = [one.held_up for one in self.partitions if not one.done]
        return Misuse("deadlock: " + "; ".join(stuck))
