"""The stateful machine: calls of one launcher that change one thing at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial, wraps
from itertools import pairwise
from types import ModuleType
from typing import Any, ClassVar

from hypothesis import strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from gemmgen.select.plan import Plan
from gemmgen.tables.operations import OPERATIONS
from gemmgen.verification.cases.cases import input_tensors, numbers
from gemmgen.verification.cases.views import FOR_OUTPUTS, VIEWS
from gemmgen.verification.example.one_example import several
from gemmgen.verification.launches.bench import Bench
from gemmgen.verification.launches.calls import OUTS, OWN_VIEWS, Call, Facts
from gemmgen.verification.launches.real import RealBench
from gemmgen.verification.stand_in.turns import in_turns

_SIZES = (64, 1, 16, 128, 7, 60, 72, 1000, 4096, 0)
_NUMBERS = (
    *(1.0, 0.0, -0.0, -3.0, 0.3, 2, 1e39, float("inf"), float("nan"), True, "1.0"),
)
_ROWS = ((64,), (1,), (16,), (128,), (5,), (300,), (4096,), (0,))
_LEADING = ((), (2, 3), (4, 1, 16), (2, 0))
_STREAMS = (0, 11, 12)
_FOUND_OUT_AT = ("captured", "current", "device", "hooked")
"""What may change what a process finds out once, at its first call."""
_BETWEEN = ("gradient", "out")
"""What is also changed from one unusual value to the next."""
_MOST_ALIVE = 3
_SCRATCH = 128
Change = tuple[str, Any]


def choices(plan: Plan) -> dict[str, Sequence[Any]]:
    """Whatever can be said of a call, and what it can be; the usual first."""
    inputs, results = input_tensors(plan), [one.name for one in plan.results]
    found: dict[str, Sequence[Any]] = {
        "rows": _ROWS + (_LEADING if OPERATIONS[plan.op].leading else ()),
        "n": _SIZES,
        "k": (4096, *_SIZES),
        "out": OUTS,
        "odd": (None, *inputs),
        "astray": (None, *inputs[1:]),
        "gradient": (
            (None, True),
            *((one, on) for one in inputs for on in (True, False)),
        ),
        "negative": (None, *inputs),
        "keywords": range(len(inputs) + len(numbers(plan)) + 1),
        "device": (0, 1),
        "current": (0, 1),
        "stream": _STREAMS,
        "captured": (False, True),
        "hooked": (None, "enter", "exit"),
    }
    views = [(name, view) for view in (*VIEWS, *OWN_VIEWS) for name in inputs]
    found["view"] = views + [(name, view) for view in FOR_OUTPUTS for name in results]
    if numbers(plan):
        places = range(len(numbers(plan)))
        found["number"] = [(place, value) for value in _NUMBERS for place in places]
    return found


def changes(plan: Plan) -> strategies.SearchStrategy[Change]:
    """One thing of a call that is to be otherwise."""
    return strategies.one_of(
        [
            strategies.tuples(strategies.just(name), strategies.sampled_from(values))
            for name, values in choices(plan).items()
        ]
    )


def changed(facts: Facts, change: Change) -> Facts:
    """The call with one thing otherwise."""
    name, value = change
    if name == "view":
        tensor, view = value
        return replace(facts, views={**facts.views, tensor: view})
    if name == "number":
        place, number = value
        values = list(facts.numbers)
        values[place] = number
        return replace(facts, numbers=tuple(values))
    return replace(facts, **{name: value})


_CHANGE = strategies.runner().flatmap(lambda one: one.changes)


def _kept(step: Callable[..., None]) -> Callable[..., None]:
    """Keep what a step raises: Hypothesis keeps nothing of what fails but once."""

    @wraps(step)
    def keeping(calls: "Calls", **drawn: Any) -> None:
        try:
            step(calls, **drawn)
        except Exception as error:
            Calls.raised = error
            raise

    return keeping


class Calls(RuleBasedStateMachine):
    """Calls a process's one launcher, that of `bench`; whatever is wrong raises."""

    bench: ClassVar[Any]
    changes: ClassVar[strategies.SearchStrategy[Change]]
    raised: ClassVar[Exception | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.facts = Facts(numbers=(1.0,) * len(numbers(self.bench.plan)))
        self.alive: list[Any] = []
        self.call: Call | None = None

    @initialize(
        scratch=strategies.sampled_from(((0, 0), (0, 0), (_SCRATCH, 0), (0, _SCRATCH))),
        anew=strategies.just(True),
    )
    def start(self, scratch: tuple[int, int], anew: bool) -> None:
        """As a new process, or at least without calls that are remembered."""
        self.bench.renew(scratch, anew)

    @rule(change=_CHANGE)
    @_kept
    def otherwise(self, change: Change) -> None:
        """One thing changes."""
        self.facts = changed(self.facts, change)
        self.call = None
        self.again()

    @rule()
    @_kept
    def again(self) -> None:
        """The same call with the same tensors."""
        if self.call is None:
            self.call = self.bench.call(self.facts)
        made = self.bench.check(self.facts, self.call, self.alive)
        if not made.refused and self.facts.out == "made":
            self.alive = [*self.alive, *several(made.returned)][-_MOST_ALIVE:]

    @rule()
    @_kept
    def elsewhere(self) -> None:
        """The same call with other tensors, at other addresses."""
        if self.call is not None:
            self.alive = [*self.alive, *self.call.tensors][-_MOST_ALIVE:]
        self.call = None
        self.again()

    @rule(change=_CHANGE, turns=strategies.lists(strategies.booleans(), max_size=12))
    @_kept
    def beside(self, change: Change, turns: list[bool]) -> None:
        """Two threads call at once, the second with one thing otherwise."""
        both = [self.facts, changed(self.facts, change)]
        both = [replace(one, captured=False, hooked=None) for one in both]
        bench = self.bench
        calls = [bench.call(one) for one in both]
        actions = [
            partial(bench.perform, bench.launcher, facts, call)
            for facts, call in zip(both, calls, strict=True)
        ]
        made = in_turns(bench.driver, actions, turns)
        for facts, call, one in zip(both, calls, made, strict=True):
            bench.judge(facts, call, one, self.alive)


def machine(bench: Bench | RealBench) -> type[Calls]:
    """The machine, of this launcher from now on.

    There is one, since Hypothesis keeps every class of machines for good.
    """
    Calls.bench, Calls.changes, Calls.raised = bench, changes(bench.plan), None
    return Calls


def each_alone(
    bench: Bench | RealBench,
) -> Iterator[tuple[str, Callable[[], None]]]:
    """For each thing that can be otherwise, calls with and without it, by turns."""
    machines = machine(bench)
    for name, values in bench.limited(choices(bench.plan)).items():
        pairs = [(values[0], value) for value in values]
        if name in _BETWEEN:
            pairs += pairwise(values)
        for one, other in pairs:
            step = partial(_by_turns, machines, (name, one), (name, other))
            yield f"{name} {one}, {other}", step


def _by_turns(machines: type[Calls], first: Change, second: Change) -> None:
    one = machines()
    one.start((0, 0), first[0] in _FOUND_OUT_AT)
    usual, other = changed(one.facts, first), changed(one.facts, second)
    for facts, step in (
        (other, "again"), (usual, "again"), (usual, "again"), (other, "again"),
        (other, "elsewhere"), (usual, "elsewhere"),
    ):  # fmt: skip
        one.facts, one.call = facts, one.call if facts is one.facts else None
        getattr(one, step)()


def real_calls(
    plan: Plan, module: ModuleType
) -> Iterator[tuple[str, Callable[[], None]]]:
    """The same with calls on this machine's GPUs, whose results are compared."""
    for name, step in each_alone(RealBench(plan, module)):
        yield f"calls with and without {name}", step
