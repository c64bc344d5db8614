"""What `gluon.jit` makes of a function where Gluon is interpreted, and its launches."""

import inspect
import zlib
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

import torch
from triton.experimental import gluon
from triton.runtime.interpreter import InterpretedFunction

from gemmgen.verification.gluon.descriptors import Descriptor
from gemmgen.verification.gluon.language import device_function, stand_ins
from gemmgen.verification.gluon.policies import POLICIES, Choices, Policy
from gemmgen.verification.gluon.program import Program
from gemmgen.verification.gluon.running import enter, finish, partition
from gemmgen.verification.interpret import interpreter
from gemmgen.verification.interpret.hardware import check_described
from gemmgen.verification.memory.misuse import MARK, cause


def interpret() -> None:
    """Interpret the kernels of Gluon that are imported from now on."""
    gluon.jit = _jit


def _jit(fn: Any = None, **_options: Any) -> Any:
    return Interpreted(fn) if fn is not None else Interpreted


class _Last:
    """The last launch, and how often it was made in a row."""

    key = 0
    times = 0


class Interpreted:
    """A function of Gluon: a kernel to be launched, or a part of one to be called."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.__name__ = fn.__name__
        self._rebound: FunctionType | None = None

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call it in a kernel."""
        return self.rebound(*arguments, **named)

    @property
    def rebound(self) -> FunctionType:
        """The function with stand-ins for what it names of Gluon."""
        if self._rebound is None:
            others = stand_ins()
            names = {
                name: (
                    device_function(value, Interpreted(value.fn))
                    if isinstance(value, InterpretedFunction)
                    else others.get(id(value), value)
                )
                for name, value in self.fn.__globals__.items()
            }
            assert isinstance(self.fn, FunctionType)
            code, defaults = self.fn.__code__, self.fn.__defaults__
            names[MARK] = True
            self._rebound = FunctionType(code, names, self.__name__, defaults)
        return self._rebound

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """The kernel on a grid, in an order that follows from what it is called with.

        The same call again has another.
        """

        def launch(
            *arguments: Any, num_warps: int = 4, num_ctas: int = 1, **_options: Any
        ) -> None:
            key = _key(arguments)
            _Last.times = _Last.times + 1 if key == _Last.key else 0
            _Last.key = key
            policy = POLICIES[(key + _Last.times) % len(POLICIES)]
            self.run(grid, arguments, policy, key, num_warps, num_ctas)

        return launch

    def run(
        self,
        grid: Iterable[int],
        arguments: tuple[Any, ...],
        policy: Policy,
        seed: int,
        warps: int = 4,
        ctas: int = 1,
    ) -> None:
        """Run a grid, its programs one after the other."""
        names = inspect.signature(self.fn).parameters
        passed = dict(zip(names, arguments, strict=True))
        values = [_converted(self.fn, *each) for each in passed.items()]
        programs = interpreter.programs(self.fn, grid, passed, partition)
        for seeded, _ in enumerate(programs):
            program = Program(Choices(policy, seed + seeded), warps, ctas)
            enter(program)
            try:
                self(*values)
            except Exception as error:
                raise cause(error) from error
            finish(program)


def _converted(fn: Any, name: str, value: Any) -> Any:
    """An argument as the kernel sees it; whole numbers as they are."""
    if isinstance(value, int):
        return value
    if hasattr(value, "block_shape"):
        check_described(value.base, value.block_shape)
        return Descriptor(value)
    return interpreter.converted(fn, name, value)


def _key(arguments: Iterable[Any]) -> int:
    """A number that follows from a launch: its sizes, and some of the first tensor.

    That one is read. Results and workspaces hold what memory held before, and with it
    an order would be another at each run.
    """
    given = [getattr(one, "base", one) for one in arguments]
    tensors = [one for one in given if isinstance(one, torch.Tensor)]
    read = [one[:1].flatten()[:16].tolist() for one in tensors[:1]]
    sizes = [getattr(one, "shape", one) for one in given]
    return zlib.crc32(" ".join(map(str, [*sizes, *read])).encode())
