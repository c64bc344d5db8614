"""Modes of torch that note what they are told of."""

from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class _Notes:
    """Notes the functions that it is told of, and calls them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[object] = []

    def told(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What torch calls."""
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


class Told(_Notes, TorchDispatchMode):  # type: ignore[misc]
    """Of operators."""

    __torch_dispatch__ = _Notes.told


class ToldOfFunctions(_Notes, TorchFunctionMode):  # type: ignore[misc]
    """Of torch's functions."""

    __torch_function__ = _Notes.told
