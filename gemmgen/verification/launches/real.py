"""The same calls on real GPUs: results of calls that are remembered, and afresh.

Thin: what is launched is looked at on the stand-in, here what comes out alone.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import triton

from gemmgen.select.plan import Plan
from gemmgen.verification.cases.cases import numbers
from gemmgen.verification.example import one_example, subject
from gemmgen.verification.example.one_example import Wrong, bits, several
from gemmgen.verification.launches.bench import Made, shared_by, unknowing
from gemmgen.verification.launches.calls import Call, Facts, call_of
from gemmgen.verification.launches.oracle import check_returned
from gemmgen.verification.oracle.comparison import Block

_TRIED: dict[str, Sequence[Any]] = {
    "rows": ((64,), (16,), (5,)),
    "n": (64, 7),
    "k": (4096, 7),
    "stream": (0, 11),
    "astray": (None,),
    "gradient": ((None, True),),
    "negative": (None,),
}
"""Of what has more values: each size may compile a kernel."""
_VIEWS = ("misaligned", "padded")
_BLOCK = Block(16, 16, 16)
"""What places in results are told in."""


class _Memory:
    """Tensors of real GPUs, of small whole numbers."""

    def empty(
        self, shape: Sequence[int], _: Sequence[int], dtype: torch.dtype, device: int
    ) -> torch.Tensor:
        """A new tensor."""
        where = torch.device("cuda", device)
        return torch.randint(-2, 3, tuple(shape), device=where).to(dtype)


@dataclass
class RealBench:
    """A launcher under test on the GPUs of this machine."""

    plan: Plan
    module: ModuleType
    streams: dict[tuple[int, int], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.driver = SimpleNamespace(gpus=_Memory(), point=lambda name: None)
        self.plain = getattr(self.module, self.plan.name).__wrapped__
        self.renew()

    def renew(self, scratch: tuple[int, int] = (0, 0), anew: bool = True) -> None:
        """Forget all calls."""
        self.launcher = subject.remembering(self.module, self.plain)

    def limited(self, choices: dict[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
        """What is tried of all that a call can be."""
        found = choices | {name: _TRIED[name] for name in _TRIED if name in choices}
        found["view"] = [one for one in choices["view"] if one[1] in _VIEWS]
        if torch.cuda.device_count() < 2:
            found |= {"device": (0,), "current": (0,)}
        return found

    def call(self, facts: Facts) -> Call:
        """New tensors for a call."""
        return call_of(self.plan, self.driver.gpus, facts)

    def check(self, facts: Facts, call: Call, alive: list[Any]) -> Made:
        """Make a call remembered, then afresh on the same numbers, and compare."""
        kept = [(one, one.untyped_storage().clone()) for one in call.tensors]
        made = self.perform(self.launcher, facts, call)
        found = [] if made.refused else [one.clone() for one in several(made.returned)]
        for tensor, storage in kept:
            tensor.untyped_storage().copy_(storage)
        with unknowing(shared_by(self.module)):
            fresh = self.perform(self.plain, facts, call)
        try:
            self.compare(facts, call, made, fresh, found)
            if not made.refused:
                check_returned(self.plan, facts, call, made.returned, alive)
        except Wrong as wrong:
            raise Wrong(f"{wrong}\n{facts}") from wrong
        return made

    def judge(self, facts: Facts, call: Call, made: Made, alive: list[Any]) -> None:
        """Compare a call of a thread with the oracle alone."""
        if not made.refused and facts.out == "made":
            self.compare(facts, call, made, made, several(made.returned))

    def compare(
        self, facts: Facts, call: Call, made: Made, fresh: Made, found: Sequence[Any]
    ) -> None:
        """Raise `Wrong` unless results are bit for bit those afresh, and right."""
        if made.refused or fresh.refused:
            if made.told != fresh.told:
                raise Wrong(f"{made.told}, afresh {fresh.told}")
            return
        afresh = several(fresh.returned)
        for one, other in zip(found, afresh, strict=True):
            if not bool((bits(one) == bits(other)).all()):
                raise Wrong("the result is another than afresh")
        if facts.out in ("made", "given"):
            names = numbers(self.plan)
            values = {name: float(call.inputs[name]) for name in names}
            tensors = {k: v for k, v in call.inputs.items() if k not in names}
            theirs = one_example.Call(tensors, values, None)
            one_example.check_results(self.plan, theirs, list(afresh), _BLOCK)

    def perform(self, launcher: Any, facts: Facts, call: Call) -> Made:
        """Call, with devices and streams as they are to be, and wait."""
        positional, given = call.arguments(facts.keywords)
        hooks: list[Any] = []
        with self.surroundings(facts, hooks):
            try:
                if facts.captured:
                    returned = self._captured(launcher, positional, given)
                else:
                    returned = launcher(*positional, **given)
            except Exception as error:
                returned = error
        for device in range(torch.cuda.device_count()):
            torch.cuda.synchronize(device)
        return Made(returned, [], len(hooks))

    def _captured(self, launcher: Any, positional: Any, given: Any) -> Any:
        """Through a graph, after a call that compiles what it needs."""
        self.plain(*positional, **given)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            returned = launcher(*positional, **given)
        graph.replay()
        torch.cuda.synchronize()
        several(returned)[0].graph = graph  # its memory goes with it
        return returned

    @contextmanager
    def surroundings(self, facts: Facts, hooks: list[Any]) -> Iterator[None]:
        """The current device, stream and hooks of a call."""
        runtime, key = triton.knobs.runtime, (facts.device, facts.stream)
        with ExitStack() as stack:
            stack.enter_context(torch.cuda.device(facts.device))
            if facts.stream and not facts.captured:
                if key not in self.streams:
                    self.streams[key] = torch.cuda.Stream(facts.device)
                torch.cuda.synchronize()
                stack.enter_context(torch.cuda.stream(self.streams[key]))
            if facts.current != facts.device and not facts.captured:
                stack.enter_context(torch.cuda.device(facts.current))
            stack.enter_context(torch.set_grad_enabled(facts.gradient[1]))
            if facts.hooked:
                chain = getattr(runtime, f"launch_{facts.hooked}_hook")
                chain.add(hooks.append)
                stack.callback(chain.remove, hooks.append)
            yield
