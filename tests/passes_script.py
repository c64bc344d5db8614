"""A process in which a pass over gradients is launched on the stand-in for a GPU.

The folder that it is told holds the package `made`. Fails where a call that comes again
is not repeated, or where it passes something else than Triton's own entry would.
"""

import importlib
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import triton
from torch import Tensor

from gemmgen.verification.stand_in import executed
from gemmgen.verification.stand_in.driver import Launched
from gemmgen.verification.stand_in.installation import install
from gemmgen.verification.stand_in.record import check_assumptions, difference, named

DRIVER = install()
SIZES = ((1, 1), (1, 40), (40, 1), (37, 43), (4096, 512), (1 << 16, 1 << 15))
SOME = [*itertools.product((False, True), repeat=3)][1:]
SOME_OF_TWO = [*itertools.product((False, True), repeat=2)][1:]


def is_trial(launched: Launched) -> bool:
    """Whether it is one of those by which replays are tried, not a pass."""
    return "grad" not in launched.function.compiled.src.fn.__name__


def do_trials(launched: Launched) -> None:
    """What a GPU does with them, so that replays are trusted."""
    if is_trial(launched):
        executed.run(DRIVER.gpus, launched)


def matrices(m: int, n: int) -> Iterator[Tensor]:
    """Those that lie in rows, are one number, lie in columns, with gaps, unaligned."""
    for steps in ((n, 1), (0, 0), (1, m), (2 * n, 2)):
        yield torch.empty_strided((m, n), steps, device="cuda")
    yield torch.empty(m * n + 1, device="cuda")[1:].view(m, n)


def launch_of(one: Any, given: Sequence[Any], wanted: Sequence[bool]) -> Launched:
    """The only launch of a pass, and that what it returns is what was launched for."""
    DRIVER.launches.clear()
    made = one.run(given, wanted)
    (own,) = (found for found in DRIVER.launches if not is_trial(found))
    values = named(own)
    check_assumptions(own, values)
    assert [found is not None for found in made] == list(wanted)
    for name, asked in zip(one.results, wanted, strict=True):
        assert (values[f"{name}_ptr"] is not None) == asked, (name, values)
    if wanted[0]:
        assert made[0].data_ptr() == values["grad_acc_ptr"]
    for name, passed in zip(one.inputs, given, strict=True):
        if isinstance(passed, Tensor):
            assert values[f"{name}_ptr"] == passed.data_ptr(), name
        elif passed is None:
            assert values[f"{name}_ptr"] is None, name
    return own


def repeated(
    one: Any, new: Callable[[], Sequence[Any]], wanted: Sequence[bool]
) -> None:
    """A pass over new inputs is repeated for others, as it is launched for them."""
    launch_of(one, new(), wanted)
    given = new()
    again = launch_of(one, given, wanted)
    assert not again.through_triton, "not repeated"
    importlib.import_module("made._runtime.replay").COMPILED.clear()
    one.replays.clear()
    afresh = launch_of(one, given, wanted)
    assert afresh.through_triton
    difference(again, afresh, list(one.results))


def some_gradients(one: Any) -> int:
    """A pass over the gradients of both results or of one, between such of others."""

    def inputs_of(*some: bool) -> list[Any]:
        new = (torch.empty(37, 43, device="cuda") for _ in range(4))
        grads = [next(new) if has else None for has in some]
        return [*grads, next(new), next(new), torch.empty(43, device="cuda")]

    every = [partial(inputs_of, *some) for some in SOME_OF_TWO]
    for new in every * 2:
        launch_of(one, new(), (True, True))
    for new in every:
        repeated(one, new, (True, True))
    return len(every)


def inputs(m: int, n: int, grad: Tensor, alpha: float) -> tuple[Any, ...]:
    """What a pass reads, all of it new but the gradient."""
    shapes = ((m, n), (m,), (n,))
    product, s, bias = (torch.empty(shape, device="cuda") for shape in shapes)
    return grad, product, alpha, s, bias


def surrounded(one: Any) -> None:
    """A pass that is known, while another device is current, and beside a hook."""
    given = inputs(37, 43, torch.empty(37, 43, device="cuda"), 0.5)
    for _ in range(2):
        launch_of(one, given, SOME[-1])
    with DRIVER.stream(1, 0):
        assert launch_of(one, given, SOME[-1]).device == 0
    told: list[object] = []
    triton.knobs.runtime.launch_enter_hook.add(told.append)
    launch_of(one, given, SOME[-1])
    triton.knobs.runtime.launch_enter_hook.remove(told.append)
    assert told, "no hook was called"


def far(one: Any) -> None:
    """Results whose offsets need 64 bits, of inputs that are one number each."""
    m, n = 1 << 16, 1 + (1 << 15)
    grad, product = (torch.empty((), device="cuda").expand(m, n) for _ in range(2))
    s, bias = torch.empty(m, device="cuda"), torch.empty(n, device="cuda")
    own = launch_of(one, (grad, product, 0.5, s, bias), SOME[-1])
    assert str(named(own)["INDEX"]) == "int64"


def main(folder: str) -> None:
    DRIVER.on_launch = do_trials
    sys.path.insert(0, folder)
    one = importlib.import_module("made.scaled.grad_epilogue").GRAD_EPILOGUE
    two = importlib.import_module("made.two.grad_epilogue").GRAD_EPILOGUE
    count = some_gradients(two)
    for m, n in SIZES:
        some = SOME if (m, n) == (37, 43) else SOME[-1:]
        each = itertools.product(matrices(m, n), some, (0.5, -2))
        for grad, wanted, alpha in each:
            repeated(one, partial(inputs, m, n, grad, alpha), wanted)
            count += 1
    surrounded(one)
    far(one)
    DRIVER.launches.clear()
    empty = torch.empty(0, 5, device="cuda")
    made = one.run(inputs(0, 5, empty, 0.5), SOME[-1])
    assert [tuple(found.shape) for found in made] == [(0, 5), (0,), (5,)]
    assert not DRIVER.launches
    print(f"{count} launches repeated")


main(sys.argv[1])
