"""Calls kernels with DTensors of two processes, in Triton's interpreter.

Prints a line for each case, as other scripts do. Runs beside the kernels that
test_sharding.py builds, in `made`; `all` after its name tries every placement, names of
cases these alone.
"""

import copy
import io
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import made
import torch
import torch.distributed as dist
from made import Down, Up, adding, both, down, plain, rowed, scaled, turned, up
from torch import Tensor, nn

assert "torch.distributed.tensor" not in sys.modules, "kernels bring it"

from made._runtime.layers import parallel  # noqa: E402
from made._runtime.operators.registry import schema_of, slot_of  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import (  # noqa: E402
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
)
from torch.distributed.tensor.debug import CommDebugMode  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from tests.cases import CASES, case, refused, run_all  # noqa: E402

R, P = Replicate(), Partial()
S0, S1, S2 = map(Shard, range(3))
CLOSE = {"rtol": 1e-12, "atol": 1e-12}
"""Kernels are of fp64: the order of a sum shows in the last digits alone."""
EVERY = sys.argv[1:] == ["all"]


def draw(*sizes: int) -> Tensor:
    return torch.randn(sizes, dtype=torch.float64)


def several(returned: Any) -> Sequence[Tensor]:
    return returned if isinstance(returned, tuple) else (returned,)


def cut(one: Any, placement: Any) -> Any:
    """A DTensor that learns; a number as it is."""
    if not isinstance(one, Tensor):
        return one
    return distribute_tensor(one, MESH, [placement]).requires_grad_()


def flow(launcher: Any, inputs: Sequence[Any]) -> tuple[Tensor, Sequence[Tensor]]:
    """The first result, of which alone there is a gradient, and those of all inputs."""
    first = several(launcher(*inputs))[0]
    learning = [one for one in inputs if isinstance(one, Tensor)]
    incoming = torch.full_like(first, 0.5)
    return first, torch.autograd.grad(first, learning, incoming)


def whole(one: Tensor) -> Tensor:
    return one.full_tensor() if isinstance(one, DTensor) else one


def held(launcher: Any, inputs: Sequence[Any], placements: Sequence[Any]) -> Any:
    """Hold a call against that of one process; the placement of its result."""
    plain_ones = [
        one.clone().requires_grad_() if isinstance(one, Tensor) else one
        for one in inputs
    ]
    wanted, expected = flow(launcher, plain_ones)
    given = [cut(one, how) for one, how in zip(inputs, placements, strict=True)]
    found, grads = flow(launcher, given)
    torch.testing.assert_close(whole(found), wanted, **CLOSE)
    for got, want in zip(grads, expected, strict=True):
        torch.testing.assert_close(whole(got), want, **CLOSE)
    (placement,) = found.placements
    return placement


X, W, BIAS, RES = draw(2, 3, 6), draw(8, 6), draw(8), draw(2, 3, 8)
ROW = draw(2, 3)
CALLS: dict[Any, list[Any]] = {
    up: [X, W, BIAS],
    both: [X, W, BIAS],
    down: [X, W, BIAS, RES],
    rowed: [X, W, ROW, ROW + 1],
    scaled: [draw(5, 6), draw(6, 8), 0.5, 2.0, draw(5, 8)],
    turned: [draw(6, 5), draw(8, 6), draw(8)],
}


# -- operators -----------------------------------------------------------------------


@case
def rules_are_there_in_inference_mode() -> None:
    """Where autograd is never asked; the first call with a DTensor, of an operator."""
    with torch.inference_mode():
        made_ = torch.ops.made.plain(cut(X, R).detach(), cut(W, S0).detach())
    assert made_.placements == (S2,)
    torch.testing.assert_close(whole(made_), X @ W.T, **CLOSE)


@case
def what_is_whole_stays_whole() -> None:
    for launcher in (both, scaled):
        assert held(launcher, CALLS[launcher], [R] * len(CALLS[launcher])) == R


@case
def columns_of_b_are_columns_of_the_result() -> None:
    for launcher, placements, wanted in (
        (both, (R, S0, S0), S2),
        (down, (R, S0, S0, S2), S2),
        (scaled, (R, S1, R, R, S1), S1),
        (turned, (R, S0, S0), S1),
    ):
        assert held(launcher, CALLS[launcher], placements) == wanted
    odd = [X, draw(7, 6), draw(7)]
    assert held(up, odd, (R, S0, S0)) == S2


@case
def parts_of_k_add_up_where_the_epilogue_is_linear() -> None:
    for launcher, placements in (
        (down, (S2, S1, R, R)),
        (rowed, (S2, S1, R, R)),
        (scaled, (S1, S0, R, R, R)),
        (turned, (S0, S1, R)),
    ):
        assert held(launcher, CALLS[launcher], placements) == P, launcher
    odd = [draw(4, 5), draw(8, 5)]
    assert held(plain, odd, (S1, S1)) == P


@case
def parts_of_k_are_gathered_where_it_is_not() -> None:
    for launcher in (up, both):
        assert held(launcher, CALLS[launcher], (S2, S1, R)) != P


@case
def rows_are_rows_of_the_result() -> None:
    for launcher, placements, wanted in (
        (up, (S0, R, R), S0),
        (rowed, (S1, R, S1, S1), S1),
        (scaled, (S0, R, R, R, S0), S0),
        (turned, (S1, R, R), S0),
    ):
        assert held(launcher, CALLS[launcher], placements) == wanted


@case
def whatever_does_not_go_together_is_laid_out_anew() -> None:
    """One of all ways of a kernel; all of them, of each, where there is time."""
    for launcher, inputs in CALLS.items() if EVERY else [(down, CALLS[down])]:
        ways = itertools.product(
            *([R, *map(Shard, range(one.ndim))] if isinstance(one, Tensor) else [R]
              for one in inputs)
        )  # fmt: skip
        for placements in itertools.islice(ways, 3, None, 1 if EVERY else 997):
            held(launcher, inputs, placements)


@case
def nothing_is_sent_where_nothing_has_to_be() -> None:
    columns = [cut(*one) for one in zip(CALLS[up], (R, S0, S0), strict=True)]
    rows = [cut(*one) for one in zip(CALLS[down], (S2, S1, R, R), strict=True)]
    for launcher, inputs in ((up, columns), (down, rows)):
        with CommDebugMode() as mode:
            flow(launcher, inputs)
        assert mode.get_total_counts() == 0, (launcher, mode.get_comm_counts())


@case
def numbers_are_those_of_each_call() -> None:
    """Not those of the call for which DTensor found out what has to be sent."""
    a, b, _, _, c = CALLS[scaled]
    for alpha, beta in ((0.5, 2.0), (3.0, -1.0)):
        held(scaled, [a, b, alpha, beta, c], (S1, S1, R, R, S0))


@case
def gradients_are_those_that_are_asked_for() -> None:
    """Of a pass that DTensor knows: it must not take one call for another."""
    inputs = [cut(*one) for one in zip(CALLS[up], (R, S0, S0), strict=True)]
    _, wanted = flow(up, [one.clone().requires_grad_() for one in CALLS[up]])
    for asked in ((2,), (0,), (1, 2), (0, 1, 2)):
        result = up(*inputs)
        found = torch.autograd.grad(
            result, [inputs[at] for at in asked], torch.full_like(result, 0.5)
        )
        for at, one in zip(asked, found, strict=True):
            torch.testing.assert_close(whole(one), wanted[at], **CLOSE)


@case
def any_result_alone_may_have_a_gradient() -> None:
    """The others have none, not one of zeros that would have to be cut."""
    for at, placements in itertools.product(range(2), ((R, S0, S0), (S0, R, R))):
        inputs = [cut(*one) for one in zip(CALLS[both], placements, strict=True)]
        plain_ones = [one.clone().requires_grad_() for one in CALLS[both]]
        found, wanted = (
            torch.autograd.grad(both(*given)[at].sum(), given)
            for given in (inputs, plain_ones)
        )
        for got, want in zip(found, wanted, strict=True):
            torch.testing.assert_close(whole(got), want, **CLOSE)


@case
def gradients_are_added_to_those_there_are() -> None:
    """In their layout, whatever that of the sum is."""
    _, (_, wanted, _) = flow(up, [one.clone().requires_grad_() for one in CALLS[up]])
    for placements in ((R, S0, S0), (S0, R, R), (S0, S0, R)):
        x, w, bias = (cut(*one) for one in zip(CALLS[up], placements, strict=True))
        w.main_grad = cut(torch.ones_like(W), placements[1]).detach()
        result = adding(x, w, bias)
        incoming = torch.full_like(result, 0.5)
        (grad,) = torch.autograd.grad(result, [w], incoming, allow_unused=True)
        assert grad is None
        torch.testing.assert_close(whole(w.main_grad), 1 + wanted, **CLOSE)


@case
def an_operator_that_dtensor_knows_is_not_another_s() -> None:
    """Which would be cut as the first was; a second of other axes has another name."""
    known = down.operator.slot
    assert known.sharded == down.operator.axes
    again, new = slot_of(down, "down", schema_of(down), down.operator.axes)
    assert again is known and not new
    other = down.operator.axes._replace(linear_in=None)
    slot, new = slot_of(down, "down", schema_of(down), other)
    assert new and slot.name == "made_2::down"


# -- modules -------------------------------------------------------------------------


def trained(model: nn.Module, *inputs: Tensor) -> list[Tensor]:
    """What a model returns, and the gradients of its parameters and inputs."""
    learning = [one.clone().requires_grad_() for one in inputs]
    result = model(*learning)
    result.square().sum().backward()
    every = [*model.parameters(), *learning]
    return [whole(result), *(whole(one.grad) for one in every)]  # type: ignore[arg-type]


def same(model: nn.Module, cut_model: nn.Module, *inputs: Tensor) -> None:
    """Hold a model that is cut against one that is not."""
    for got, want in zip(
        trained(cut_model, *inputs), trained(model, *inputs), strict=True
    ):
        torch.testing.assert_close(got, want, **CLOSE)


class Mlp(nn.Module):
    """Two layers; the second adds to what comes in."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.up, self.down = Up(6, 8), Down(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        """x, and what becomes of it."""
        return self.down(self.up(x), r=x)


@case
def torch_s_own_styles_do_for_one_tensor() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(Up(6, 8), made.Plain(8, 6))
    cut_model = parallelize_module(
        copy.deepcopy(model), MESH, {"0": ColwiseParallel(), "1": RowwiseParallel()}
    )
    assert cut_model[0].weight.to_local().shape == (4, 6)
    same(model, cut_model, X)


@case
def styles_of_kernels_pass_operands_on() -> None:
    model = Mlp()
    plan = {"up": parallel.ColwiseKernel(), "down": parallel.RowwiseKernel()}
    cut_model = parallelize_module(copy.deepcopy(model), MESH, plan)
    assert cut_model.down.weight.to_local().shape == (6, 4)
    assert cut_model.down.bias.placements == (R,)
    with CommDebugMode() as mode:
        same(model, cut_model, X)
    counts = mode.get_comm_counts()  # others are those of `whole`
    assert counts[torch.ops.c10d_functional.all_reduce] == 2, counts  # of y, and of x


@case
def layouts_are_told_of_each_argument() -> None:
    """As of a sequence that is cut between layers, which numbers have no part in."""
    layer = made.Weighted(6, 8)
    local, rows = X[:, RANK : RANK + 1], ROW[:, RANK : RANK + 1]
    style = parallel.ColwiseKernel(
        input_layouts=(S1, None, S1), output_layouts=S1, use_local_output=False
    )
    cut_layer = parallelize_module(copy.deepcopy(layer), MESH, style)
    found = cut_layer(local, 2.0, rows)
    assert found.placements == (S1,)
    torch.testing.assert_close(
        found.full_tensor(), layer(X[:, :2], 2.0, ROW[:, :2]), **CLOSE
    )


@case
def what_is_no_kernel_s_module_is_refused() -> None:
    for style in (parallel.ColwiseKernel(), parallel.RowwiseKernel()):
        refused(
            lambda style=style: parallelize_module(nn.Linear(2, 2), MESH, style),
            f"{type(style).__name__}: Linear is no module of a kernel",
        )


@case
def parameters_are_cut_by_fsdp() -> None:
    """Which gathers them for each call: kernels get plain tensors."""
    model = Mlp()
    cut_model = copy.deepcopy(model)
    for one in (cut_model.up, cut_model.down, cut_model):
        fully_shard(one, mesh=MESH)
    assert cut_model.up.weight.to_local().shape == (4, 6)
    same(model, cut_model, X)


@case
def a_model_that_is_cut_is_compiled() -> None:
    if not EVERY:
        return
    model = Mlp()
    plan = {"up": parallel.ColwiseKernel(), "down": parallel.RowwiseKernel()}
    cut_model = parallelize_module(copy.deepcopy(model), MESH, plan)
    same(model, torch.compile(cut_model, backend="aot_eager", fullgraph=True), X)


def as_rank(rank: int, run: Callable[[], None]) -> None:
    """Run as one of both processes."""
    global RANK, MESH
    RANK = rank
    store = dist.FileStore(str(Path("store").absolute()), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    MESH = init_device_mesh("cpu", (2,))
    try:
        run()
    finally:
        dist.destroy_process_group()


def main() -> None:
    """Run every case in both processes; the second one's failures go to stderr."""
    torch.set_num_threads(1)
    run = partial(run_all, CASES if EVERY else sys.argv[1:])
    child = os.fork()  # what was imported took seconds
    if child:
        as_rank(0, run)
        _, status = os.waitpid(child, 0)
        sys.exit(os.waitstatus_to_exitcode(status))
    sys.stdout = said = io.StringIO()
    as_rank(1, run)
    failed = [line for line in said.getvalue().splitlines() if not line.endswith(" ''")]
    os._exit(len(failed))


if __name__ == "__main__":
    main()
