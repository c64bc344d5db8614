"""The processes that a command was started as: those of a job of torchrun, or one."""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Processes:
    """How many there are, and which of them this one is; `local`, on this machine.

    The first, of `rank` 0, is the one that speaks and writes.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


def started() -> Processes:
    """What torchrun, or another launcher that sets its variables, says of them."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    said = [os.environ.get(name, "") for name in names]
    if not all(map(str.isdecimal, said)):
        return Processes()
    rank, size, local_rank = map(int, said)
    here = os.environ.get("LOCAL_WORLD_SIZE", "")
    return Processes(rank, size, local_rank, int(here) if here.isdecimal() else size)
