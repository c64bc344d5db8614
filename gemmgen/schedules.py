"""Table of schedules: each names its template and says when it cannot serve."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """One way to run the product; `templates/<name>.py.jinja` is its program."""

    name: str
    title: str
    lowest_architecture: int
    built: bool = True


SCHEDULES: dict[str, Schedule] = {
    row.name: row
    for row in (
        Schedule("tiled", "one output tile per program", 80),
        Schedule("tma", "one output tile per program, descriptors", 90, False),
        Schedule("persistent", "one program per SM, tiles in a loop", 90, False),
        Schedule("split_k", "K cut into parts, reduced in order", 80, False),
        Schedule("warp_specialized", "producer and consumer warps", 90, False),
    )
}
