"""Two threads that take turns at points which the stand-in gives."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from gemmgen.verification.example.one_example import Wrong
from gemmgen.verification.stand_in.driver import Driver

_PATIENCE = 30.0
"""Seconds after which a thread that waits for its turn is stuck."""


class _Turns:
    """Whose turn it is: at a point where `turns` says so, the other thread's."""

    def __init__(self, turns: Sequence[bool]) -> None:
        self.turns = list(turns)
        self.threads: list[int] = []
        self.ended: set[int] = set()
        self.now = 0
        self.changed = threading.Condition()

    def point(self, _: str) -> None:
        """A thread is at a point: it may be the other's turn."""
        me = threading.get_ident()
        if me not in self.threads:
            return
        with self.changed:
            if self.turns and self.turns.pop(0):
                self._pass_on()
            self._wait(self.threads.index(me))

    def begin(self, place: int) -> None:
        """Wait for the first turn."""
        with self.changed:
            self._wait(place)

    def end(self, place: int) -> None:
        """The rest is the other's."""
        with self.changed:
            self.ended.add(place)
            self._pass_on()

    def _pass_on(self) -> None:
        if 1 - self.now not in self.ended:
            self.now = 1 - self.now
        self.changed.notify_all()

    def _wait(self, place: int) -> None:
        if not self.changed.wait_for(lambda: self.now == place, _PATIENCE):
            raise Wrong("two threads that call at once wait for each other")


def in_turns(
    driver: Driver, actions: Sequence[Callable[[], Any]], turns: Sequence[bool]
) -> list[Any]:
    """What two actions return, each in a thread of its own; or raise what one does."""
    order, found = _Turns(turns), [None, None]
    raised: list[BaseException] = []
    ready = threading.Barrier(3)

    def work(place: int) -> None:
        ready.wait()
        ready.wait()
        try:
            order.begin(place)
            found[place] = actions[place]()
        except BaseException as error:
            raised.append(error)
        finally:
            order.end(place)

    threads = [threading.Thread(target=work, args=(place,)) for place in (0, 1)]
    for thread in threads:
        thread.start()
    ready.wait()
    order.threads = [thread.ident or 0 for thread in threads]
    driver.point = order.point
    ready.wait()
    try:
        for thread in threads:
            thread.join()
    finally:
        driver.point = lambda name: None
    for error in raised:
        raise error
    return found
