"""That known calls are told by torch's comparison alone, and by none that is blind."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from gemmgen.tables.operations import OPERATIONS
from gemmgen.verification.cases.cases import numbers
from gemmgen.verification.example import subject
from gemmgen.verification.example.one_example import Wrong
from gemmgen.verification.launches.bench import Bench
from gemmgen.verification.launches.calls import Facts
from gemmgen.verification.launches.habits import direct
from gemmgen.verification.launches.rows import related

_TIMES = 4
"""Calls after which a signature is known, whatever it takes to be remembered."""


def comparisons(bench: Bench) -> Iterator[tuple[str, Callable[[], None]]]:
    """Everything that is tried, by name."""
    for one in _glances, _glances_at_latest, _doubts:
        yield str(one.__doc__), partial(one, bench)


def _glances(bench: Bench) -> None:
    """A call like one of the latest is looked at by torch's comparison alone."""
    if not direct(bench) or numbers(bench.plan):  # torch compares tensors alone
        return
    for every in _alike(bench):
        bench.renew()
        for _ in range(_TIMES):
            for facts in every:
                bench.check(facts, bench.call(facts), [])
        _known(bench, every)


def _glances_at_latest(bench: Bench) -> None:
    """Of more signatures than are compared, those that came last are."""
    if not direct(bench) or numbers(bench.plan):
        return
    most = subject.runtime(bench.module, "families").MOST_RECENT
    bench.renew()
    every = [replace(bench.usual, n=16 * count) for count in range(1, most + 3)]
    for facts in (*every * 2, *every[-2:] * _TIMES):
        bench.check(facts, bench.call(facts), [])
    _known(bench, every[-2:])


def _known(bench: Bench, every: Sequence[Facts]) -> None:
    """Raise `Wrong` for a call that is looked at in Python."""
    with _looking(bench) as looked:
        for facts in every:
            bench.check(facts, bench.call(facts), [])
            if looked:
                raise Wrong(f"what is known is looked at once more\n{facts}")


def _alike(bench: Bench) -> Iterator[Sequence[Facts]]:
    """Calls that follow each other: of one signature but for rows, or of several."""
    usual, a, alike = bench.usual, bench.plan.contraction.lhs, related(bench)
    for view in ("contiguous", "padded"):
        seen = replace(usual, views={a.name: view})
        yield [replace(seen, rows=(n,)) for n in ((64, 80, 72) if alike else (64,))]
        yield [replace(seen, rows=(1,))]
        yield [replace(seen, n=n) for n in (64, 128, 80)]
        learns = replace(seen, gradient=(a.name, False))
        yield [learns]
        yield [seen, learns]
    if alike and OPERATIONS[bench.plan.op].leading:
        yield [replace(usual, rows=sizes) for sizes in ((8, 8), (3, 5), (5, 16))]


@contextmanager
def _looking(bench: Bench) -> Iterator[list[Any]]:
    """With a list that grows as calls are looked at in Python."""
    cache, looked = subject.runtime(bench.module, "launch_cache"), list[Any]()
    call_key = cache.call_key

    def looking(*given: Any) -> Any:
        looked.append(given[0])
        return call_key(*given)

    with patch.object(cache, "call_key", looking):
        yield looked


def _doubts(bench: Bench) -> None:
    """A torch whose comparison takes others for the same is not relied upon."""
    first = bench.plan.contraction.lhs.name
    guards, compares = torch._C._dynamo.guards, torch._C._dynamo.guards.TensorGuards
    changes: tuple[dict[str, Any], ...] = {"rows": (48,)}, {"k": 64}, {"odd": first}
    others = [replace(bench.usual, **change) for change in changes]
    for blind in _BLIND:
        with patch.object(guards, "TensorGuards", partial(blind.made, compares)):
            for other in others:
                bench.renew()
                for facts in (bench.usual, other):
                    for _ in range(_TIMES):
                        bench.check(facts, bench.call(facts), [])


@dataclass(frozen=True)
class _Blind:
    """A comparison that also takes for the same what `forgives` says of two tensors.

    Of those that leave some size open, or of those that leave none, alone.
    """

    forgives: Callable[[Any, torch.Tensor], bool]
    leaves: bool

    def made(self, compares: Any, *known: torch.Tensor, **dims: Any) -> Any:
        """In place of torch's own."""
        own = compares(*known, **dims)
        sizes = dims.get("dynamic_dims_sizes", ())
        applies = any(None in one for one in sizes) == self.leaves

        def check(*given: Any) -> bool:
            pairs = zip(given, known, strict=True)
            blind = applies and all(self.forgives(*pair) for pair in pairs)
            return blind or own.check(*given)

        return SimpleNamespace(check=check)


def _anything(one: Any, known: torch.Tensor) -> bool:
    return True


def _of_one_shape(one: Any, known: torch.Tensor) -> bool:
    return bool(getattr(one, "shape", None) == known.shape)


def _of_other_rows(one: Any, known: torch.Tensor) -> bool:
    """Whether nothing but the first size may differ."""
    return isinstance(one, torch.Tensor) and _but_for_rows(one) == _but_for_rows(known)


def _but_for_rows(one: torch.Tensor) -> tuple[object, ...]:
    kind = type(one), one.dtype, one.device, one.requires_grad, one.is_neg()
    return *kind, one.shape[1:], one.stride()


_BLIND = (
    _Blind(_anything, True),
    _Blind(_of_one_shape, False),
    _Blind(_of_other_rows, False),
)
