"""Workspaces in which the parts of K meet: whose they are, how large, and zeroed."""

import math
from typing import Any

from gemmgen.verification.example.one_example import Wrong
from gemmgen.verification.stand_in.driver import Driver, Launched
from gemmgen.verification.stand_in.record import named


class Workspaces:
    """Every workspace that a launch was given, and by whom it was used."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.users: dict[object, object] = {}

    def check(self, launched: Launched) -> None:
        """Raise `Wrong` unless a launch has the workspace that it needs to itself."""
        values = named(launched)
        parts = launched.grid[1]
        if "counters_ptr" not in values or parts == 1:
            return
        tiles = math.ceil(values["M"] / values["BLOCK_M"])
        tiles *= math.ceil(values["N"] / values["BLOCK_N"])
        counts = tiles * values.get("NUM_WGS", 1)  # each group of warps has its own
        kinds = launched.function.compiled.src.signature
        if (kinds["partials_ptr"], kinds["counters_ptr"]) != ("*fp32", "*i32"):
            raise Wrong(
                f"parts are {kinds['partials_ptr']}, counts {kinds['counters_ptr']}"
            )
        room = 4 * tiles * parts * values["BLOCK_M"] * values["BLOCK_N"]
        self._owned(launched, "partials_ptr", values["partials_ptr"], room)
        self._owned(launched, "counters_ptr", values["counters_ptr"], 4 * counts)
        self._clean(launched, values["counters_ptr"], counts)

    def _owned(self, launched: Launched, name: str, address: int, size: int) -> None:
        """Launches of a stream share a workspace; each captured one has its own."""
        block = self.driver.gpus.block(launched.function.device, address)
        if block is None or block.end < address + size:
            raise Wrong(f"{name} has less than {size} bytes of its device: {block}")
        user: Any = launched.function.device, launched.stream
        if launched.capture is not None:
            user = id(launched)
        owner = self.users.setdefault(block, user)
        if owner != user:
            raise Wrong(f"the {name} of {owner} is given to {user}")

    def _clean(self, launched: Launched, address: int, counts: int) -> None:
        memory = self.driver.gpus.memories[launched.function.device]
        offset = address - memory.start
        if bool(memory.host[offset : offset + 4 * counts].any()):
            raise Wrong("the counts of the workspace are not zero")
        graph = launched.capture
        if graph is not None and self.driver.zeroed.get(address) is not graph:
            raise Wrong("the counts of a graph are not zeroed in it")
