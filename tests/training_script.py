"""Trains with kernels that have a backward, in Triton's interpreter.

Of the package `made` in the folder that it runs in, which `test_training` builds.
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import made
import torch
from made import added, both, rectified, steep, stream, up
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from gemmgen.select.plan import Plan, load
from gemmgen.verification.example.one_example import Wrong
from gemmgen.verification.interpret import interpreter
from gemmgen.verification.operators.checks import check_operator
from tests.cases import case, refused, run_all

CPU = torch.device("cpu")
PLANS = {plan.name: plan for plan in load(Path("spec.yaml"))}
TRAINED = [plan for plan in PLANS.values() if plan.grad]
SIZES = {"m": 5, "n": 24, "k": 32}
ONCE = "has no second derivative"


def drawn(plan: Plan, leading: Sequence[int] = (5,), learn: bool = True) -> list[Any]:
    """Arguments of a kernel, all of which learn; 0.5 for numbers."""
    axes = {one.name: one.axes for one in plan.inputs}
    sizes = {**SIZES, "m": leading[-1]}
    given: list[Any] = []
    for name in plan.argument_names:
        if name not in axes:
            given.append(0.5)
            continue
        more = leading[:-1] if "m" in axes[name] else ()
        shape = [*more, *(sizes[axis] for axis in axes[name])]
        asked = getattr(made, plan.name).operator.requested[name][1]
        given.append(torch.randn(shape).to(asked).requires_grad_(learn))
    return given


def several(returned: Any) -> Sequence[Tensor]:
    return returned if isinstance(returned, tuple | list) else (returned,)


def tensors(inputs: Sequence[Any]) -> list[Tensor]:
    return [one for one in inputs if isinstance(one, Tensor)]


def gradients(call: Callable[..., Any], inputs: Sequence[Any]) -> list[Tensor | None]:
    """Those of all that learn, from gradients like the results."""
    learning = [one for one in tensors(inputs) if one.requires_grad]
    results = [one for one in several(call(*inputs)) if one.requires_grad]
    given = [one.detach() for one in results]
    return [*torch.autograd.grad(results, learning, given, allow_unused=True)]


def equal(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Hold that tensors are the same, bit by bit, and some of them not zero."""
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted, strict=True):
        assert (got is None) == (want is None)
        if want is not None:
            assert got.dtype == want.dtype and torch.equal(got, want)
    assert any(one is not None and one.abs().max() > 0 for one in wanted)


def or_zeros(found: Sequence[Any], like: Sequence[Tensor]) -> list[Tensor]:
    """Gradients, zeros for None: which a graph makes for results that it returns."""
    each = zip(found, like, strict=True)
    return [torch.zeros_like(one) if got is None else got for got, one in each]


def close(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Hold that tensors differ by roundings at most, and are not zero.

    For rows that stand elsewhere in a tile: NumPy's BLAS adds up what is in a product's
    last rows in another order, on some processors.
    """
    for got, want in zip(found, wanted, strict=True):
        largest = want.abs().max().item()
        room = 4 * torch.finfo(want.dtype).eps * largest
        assert largest > 0
        torch.testing.assert_close(got, want, rtol=0, atol=room)


def traced(function: Callable[..., Any], **options: Any) -> Any:
    torch._dynamo.reset()
    options = {"backend": "aot_eager", "dynamic": True, **options}
    return torch.compile(function, fullgraph=True, **options)


def loss(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    return up(x * 2, w, bias).float().square().sum()


X, W, BIAS = drawn(PLANS["up"], (2, 5))
PLAIN = [one.detach() for one in (X, W, BIAS)]


# -- operators -----------------------------------------------------------------------


@case
def kernels_with_a_backward_pass_opcheck() -> None:
    for plan in TRAINED:
        overload = getattr(made, plan.name).operator.overload
        for leading in ((5,), (1,)):
            torch.library.opcheck(overload, drawn(plan, leading))


def passes() -> Iterator[tuple[Any, list[Any]]]:
    """The passes of all backwards, each with something to read."""
    for plan in TRAINED:
        if plan.backward and plan.backward.passed:
            name = f"made.{plan.name}.grad_epilogue"
            one = importlib.import_module(name).GRAD_EPILOGUE
            shapes = [[SIZES[axis] for axis in axes] for axes in one.inputs.values()]
            yield one, [torch.randn(shape) if shape else 0.5 for shape in shapes]


@case
def passes_pass_opcheck_whatever_is_wanted() -> None:
    found = list(passes())
    assert len(found) == 6
    for one, given in found:
        count = len(one.results)
        for wanted in (2**count - 1, *(2**place for place in range(count))):
            torch.library.opcheck(one.overload, (*given, wanted))
            made_ = several(one.overload(*given, wanted))
            asked = [bool(wanted & 2**place) for place in range(count)]
            assert [bool(each.numel()) for each in made_] == asked
        schema = str(one.overload._schema)
        tensors = ", ".join(["Tensor"] * count)
        returned = f"({tensors})" if count > 1 else tensors
        assert schema.endswith(f"int wanted) -> {returned}"), schema


@case
def passes_pass_opcheck_whatever_is_missing() -> None:
    found = [each for each in passes() if each[0].optional]
    assert [each[0].optional for each in found] == [2, 2]
    for one, given in found:
        for place in range(2):
            some: list[Any] = [*given]
            some[place] = None
            torch.library.opcheck(one.overload, (*some, 1))
            results = several(one.overload(*some, 1))
            assert results[0].shape == given[0].shape
        assert "(Tensor? grad_" in str(one.overload._schema)


@case
def a_pass_refuses_derivatives_by_name() -> None:
    one, given = next(passes())
    name = next(iter(one.inputs))
    given[0].requires_grad_()
    words = f"{one.kernel}: {name} must not require a gradient"
    refused(lambda: one.overload(*given, 2 ** len(one.results) - 1), words)


@case
def a_pass_maps_item_by_item() -> None:
    one, given = next(passes())
    wanted = 2 ** len(one.results) - 1
    items = torch.stack([given[0], 2 * given[0]])
    mapped = torch.vmap(lambda first: one.overload(first, *given[1:], wanted))(items)
    each = [one.overload(item, *given[1:], wanted) for item in items]
    equal(mapped, [torch.stack(pair) for pair in zip(*each, strict=True)])


# -- compiled ------------------------------------------------------------------------


@case
def compiled_gradients_are_those_of_plain_calls() -> None:
    for plan in TRAINED:
        launcher = getattr(made, plan.name)
        call = traced(launcher)
        for leading in ((5,), (1,)):
            inputs = drawn(plan, leading)
            equal(gradients(call, inputs), gradients(launcher, inputs))


@case
def forward_and_backward_are_compiled_once_for_all_sizes() -> None:
    counts = {"forward": 0, "backward": 0}
    seen: list[str] = []

    def counting(name: str) -> Any:
        def compiler(graph: Any, _: Any) -> Any:
            counts[name] += 1
            seen.extend(
                str(node.target) for node in graph.graph.nodes if "call" in node.op
            )
            return graph.forward

        return compiler

    backend = aot_autograd(fw_compiler=counting("forward"),
                           bw_compiler=counting("backward"))  # fmt: skip
    call = traced(loss, backend=backend)
    for m, n, k in ((5, 24, 32), (3, 8, 48), (16, 16, 16), (129, 2, 7)):
        inputs = [torch.randn(size).bfloat16() for size in ((2, m, k), (n, k), (n,))]
        inputs = [one.requires_grad_() for one in inputs]
        call(*inputs).backward()
        equal([one.grad for one in inputs], torch.autograd.grad(loss(*inputs), inputs))
    assert counts == {"forward": 1, "backward": 1}, counts
    ours = [name for name in seen if name.startswith("made")]
    assert ours == [
        f"made_up.up_{part}.default"
        for part in ("forward", "grad_epilogue", "grad_x", "grad_w")
    ]


class Block(torch.nn.Module):
    """Two layers and a residual."""

    def __init__(self) -> None:
        super().__init__()
        sizes = {"w": (24, 32), "b": (24,), "v": (32, 24), "c": (32,)}
        for name, size in sizes.items():
            value = torch.nn.Parameter(torch.randn(size).bfloat16() / 8)
            self.register_parameter(name, value)

    def forward(self, x: Tensor) -> Tensor:
        """Return x, and what the layers add to it."""
        return stream(up(x, self.w, self.b), self.v, self.c, x)


def trained(wrap: Callable[[Any], Any], steps: int = 4) -> list[float]:
    """The losses of some steps of a block."""
    torch.manual_seed(0)
    block = Block()
    call = wrap(block)
    optimizer = torch.optim.SGD(block.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        x = torch.randn(2, 5 + step, 32).bfloat16()
        value = (call(x) - x.roll(1, 0)).float().square().mean()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert all(one.grad.abs().max() > 0 for one in block.parameters())
    return losses


@case
def a_block_trains_compiled_as_it_does_plainly() -> None:
    wanted = trained(lambda block: block)
    assert len(set(wanted)) == len(wanted)
    assert trained(traced) == wanted
    assert trained(partial(traced, backend="inductor")) == wanted


@case
def a_backward_is_traced_by_compiled_autograd() -> None:
    for one in (X, W, BIAS):
        one.grad = None
    call = traced(lambda *inputs: loss(*inputs).backward())
    wanted = torch.autograd.grad(loss(X, W, BIAS), (X, W, BIAS))
    torch._dynamo.reset()
    call = torch.compile(lambda *one: loss(*one).backward(), backend="aot_eager")
    with torch._dynamo.config.patch(compiled_autograd=True):
        call(X, W, BIAS)
    equal([one.grad for one in (X, W, BIAS)], wanted)


@case
def autocast_trains_compiled() -> None:
    wide = [one.float().requires_grad_() for one in PLAIN]
    with torch.autocast("cpu", torch.bfloat16):
        wanted = gradients(up, wide)
        equal(gradients(traced(up), wide), wanted)
    assert {one.dtype for one in wanted if one is not None} == {torch.float32}


@case
def out_is_refused_compiled_too() -> None:
    def into(x: Tensor, w: Tensor, bias: Tensor, out: Tensor) -> Tensor:
        return up(x, w, bias, out=out)

    out = up(*PLAIN).zero_()
    for call in (into, traced(into)):
        refused(partial(call, X, W, BIAS, out), "must not require a gradient where out")
    equal([traced(into)(*PLAIN, out)], [up(*PLAIN)])


# -- what autograd asks for ----------------------------------------------------------


@case
def any_inputs_may_learn() -> None:
    for chosen in range(1, 8):
        inputs = [
            one.clone().requires_grad_(bool(chosen >> at & 1))
            for at, one in enumerate(PLAIN)
        ]
        equal(gradients(traced(up), inputs), gradients(up, inputs))


@case
def any_results_may_have_a_gradient() -> None:
    inputs = drawn(PLANS["both"])
    for chosen in ((0,), (1,), (0, 1)):

        def call(*given: Any, chosen: Any = chosen) -> Any:
            results = both(*given)
            return tuple(results[at] for at in chosen)

        wanted = gradients(call, inputs)
        equal(gradients(traced(call), inputs), wanted)


@case
def a_result_without_a_gradient_counts_for_nothing() -> None:
    """However steep it is: at t = 0 infinitely, where it would add 0 / 0."""
    x, w, r, t = drawn(PLANS["steep"], learn=False)

    def loss(x: Tensor, w: Tensor, r: Tensor, t: Tensor) -> Tensor:
        return steep(x, w, r, t)[0].square().sum()

    learning = [one.requires_grad_() for one in (x, w, r, t)]
    wanted = torch.autograd.grad(loss(*learning), learning, allow_unused=True)
    assert wanted[3] is None
    with torch.no_grad():
        t.zero_()
    for call in (loss, traced(loss)):
        found = torch.autograd.grad(call(*learning), learning, allow_unused=True)
        equal(found[:3], wanted[:3])
        assert found[3] is None or not found[3].any()  # compiled, autograd makes some
    plain = [one.detach() for one in learning]
    every = torch.func.grad(loss, (0, 1, 2))
    equal(every(*plain), wanted[:3])
    items = torch.stack([plain[2], plain[2]])
    mapped = torch.vmap(every, (None, None, 0, None))(*plain[:2], items, plain[3])
    close([one[1] for one in mapped], wanted[:3])
    first, second = steep(*learning)
    given = torch.stack([2 * first.detach()] * 2)
    mapped = torch.autograd.grad(
        first, learning[:3], given, is_grads_batched=True, retain_graph=True
    )
    close([one[1] for one in mapped], wanted[:3])
    # Zeros that are given are multiplied, as by torch's own functions.
    zeros = torch.zeros_like(second)
    (grad,) = torch.autograd.grad((first, second), r, (given[0], zeros))
    assert grad.isnan().all()


@case
def gradients_may_lie_anyhow() -> None:
    """Expanded, as those of a sum are, turned round, with gaps, or negated views."""
    for plan in TRAINED:
        launcher, inputs = getattr(made, plan.name), drawn(plan)
        learning = tensors(inputs)
        for call in (launcher, traced(launcher)):
            flat = torch.ones_like(several(launcher(*inputs))[0])
            laid = (
                flat,
                flat.new_ones(()).expand(flat.shape),
                flat.mT.contiguous().mT,
                torch.stack([flat, flat], -1)[..., 0],
                torch._neg_view(-flat),
            )
            found = [
                torch.autograd.grad(
                    several(call(*inputs))[0], learning, one, allow_unused=True
                )
                for one in laid
            ]
            for one in found[1:]:
                equal(one, found[0])

        def summed(*given: Any, call: Any = launcher) -> Tensor:
            return several(call(*given))[0].sum()

        total = traced(summed)(*inputs)
        made_ = torch.autograd.grad(total, learning, allow_unused=True)
        equal(or_zeros(made_, learning), or_zeros(found[0], learning))


@case
def a_second_derivative_is_an_error_compiled_too() -> None:
    def twice(call: Callable[..., Any]) -> None:
        (grad,) = torch.autograd.grad(call(X, W, BIAS), X, create_graph=True)
        grad.float().sum().backward()

    refused(partial(twice, loss), f"up {ONCE}: leave out create_graph=True")
    with torch._functorch.config.patch(donated_buffer=False):
        refused(partial(twice, traced(loss)), "does not currently support double")
    refused(partial(twice, traced(loss)), "requires create_graph=False")


@case
def what_the_pass_alone_needs_is_freed_before_products() -> None:
    """Unless the graph is retained. torch's eager gelu frees it then too."""
    text: Any = sys.modules["made.up.backward"]
    run, product = text.GRAD_EPILOGUE.run, text.up_grad_x
    held: list[StorageWeakRef] = []
    freed: list[bool] = []

    def passing(given: Any, wanted: Any) -> Any:
        held.append(StorageWeakRef(given[1].untyped_storage()))
        return run(given, wanted)

    def multiplying(*given: Any) -> Any:
        freed.append(held[-1].expired())
        return product(*given)

    with (
        patch.object(text.GRAD_EPILOGUE, "run", passing),
        patch.object(text, "up_grad_x", multiplying),
    ):
        result = up(X, W, BIAS)
        for retained in (True, False):
            given = result.detach()
            found = torch.autograd.grad(
                result, (X, W, BIAS), given, retain_graph=retained
            )
            equal(found, gradients(up, (X, W, BIAS)))
    assert freed == [False, True, True, True], freed


@case
def a_gradient_that_nobody_has_asks_for_none() -> None:
    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, one: Tensor) -> Tensor:
            return one.clone()

        @staticmethod
        def backward(ctx: Any, *_: Any) -> None:
            return None

    for plan in TRAINED:
        inputs = drawn(plan)
        value = Nothing.apply(several(getattr(made, plan.name)(*inputs))[0])
        found = torch.autograd.grad(value.sum(), tensors(inputs), allow_unused=True)
        assert all(one is None for one in found), plan.name


@case
def nothing_is_kept_for_a_gradient_that_nobody_needs() -> None:
    """As torch's own: x may be written again, and goes, where the weight is frozen."""
    for plan in TRAINED:
        launcher, inputs = getattr(made, plan.name), drawn(plan, learn=False)
        for place in range(2):
            own = inputs[place].clone().requires_grad_()
            given = [*inputs]
            given[place] = own * 1
            results = several(launcher(*given))
            given[place].add_(1)  # or its version would be another
            given[place] = own * 1
            wanted = several(launcher(*given))
            pairs = [
                torch.autograd.grad(
                    next(one for one in returned if one.requires_grad).sum(), own
                )
                for returned in (results, wanted)
            ]
            equal(*pairs)


# -- gradients that are added to others ----------------------------------------------


def taken_in(run: Callable[..., Any]) -> None:
    """Hold that the weight's gradient of a call, however run, is in its main_grad."""
    x, w, bias = drawn(PLANS["added"])
    w.main_grad = torch.zeros_like(w)
    run(lambda x: added(x, w, bias), x).sum().backward()
    wanted = torch.autograd.grad(added(x, w.detach().requires_grad_(), bias).sum(), x)
    (grad,) = torch.autograd.grad(
        added(x, own := w.detach().requires_grad_(), bias).sum(), own
    )
    assert w.grad is None
    equal([w.main_grad, x.grad], [grad, *wanted])


@case
def a_weight_that_comes_back_as_another_tensor_is_the_same() -> None:
    """From a checkpoint, or from hooks that kept it elsewhere."""

    def offloaded(call: Callable[..., Any], x: Tensor) -> Tensor:
        with torch.autograd.graph.save_on_cpu():
            return call(x)

    taken_in(lambda call, x: call(x))
    taken_in(partial(checkpoint, use_reentrant=False))
    taken_in(partial(checkpoint, use_reentrant=True))
    taken_in(offloaded)


@case
def a_batch_of_gradients_is_returned() -> None:
    x, w, bias = drawn(PLANS["added"])
    w.main_grad = torch.zeros_like(w)
    result = added(x, w, bias)
    given = torch.stack([result, 2 * result]).detach()
    (found,) = torch.autograd.grad(result, w, given, is_grads_batched=True)
    (wanted,) = torch.autograd.grad(
        added(x, own := w.detach().requires_grad_(), bias), own, given[0]
    )
    close([*found], [wanted, 2 * wanted])
    assert not w.main_grad.any()


# -- checkpoints, hooks, shards ------------------------------------------------------


@case
def checkpoints_recompute() -> None:
    wanted = torch.autograd.grad(loss(X, W, BIAS), (X, W, BIAS))
    for reentrant in (False, True):

        def again(*inputs: Tensor, reentrant: bool = reentrant) -> Any:
            return checkpoint(loss, *inputs, use_reentrant=reentrant)

        for call in (again, traced(again)):
            for one in (X, W, BIAS):
                one.grad = None
            call(X, W, BIAS).backward()
            equal([one.grad for one in (X, W, BIAS)], wanted)


@case
def a_checkpoint_may_keep_what_a_forward_stores() -> None:
    from torch.utils.checkpoint import (
        CheckpointPolicy,
        create_selective_checkpoint_contexts,
    )

    called: list[str] = []

    def policy(_: Any, function: Any, *args: Any, **named: Any) -> Any:
        called.append(str(function))
        kept = function is torch.ops.made_up.up_forward.default
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.MUST_RECOMPUTE

    contexts = partial(create_selective_checkpoint_contexts, policy)
    wanted = torch.autograd.grad(loss(X, W, BIAS), (X, W, BIAS))
    value = checkpoint(loss, X, W, BIAS, use_reentrant=False, context_fn=contexts)
    equal(torch.autograd.grad(value, (X, W, BIAS)), wanted)
    assert "made_up.up_forward.default" in called


@case
def saved_tensors_go_through_hooks() -> None:
    packed: list[Tensor] = []

    def pack(one: Tensor) -> int:
        packed.append(one.clone())
        return len(packed) - 1

    wanted = gradients(up, (X, W, BIAS))
    with torch.autograd.graph.saved_tensors_hooks(pack, packed.__getitem__):
        result = up(X, W, BIAS)
    assert [tuple(one.shape) for one in packed] == [(2, 5, 32), (24, 32), (2, 5, 24)]
    found = torch.autograd.grad(result, (X, W, BIAS), result.detach())
    equal(found, wanted)


@case
def a_block_trains_in_shards() -> None:
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="0")
    store = dist.TCPStore("localhost", 0, 1, is_master=True)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = dist.device_mesh.init_device_mesh("cpu", (1,))

        def sharded(block: torch.nn.Module) -> Any:
            return fully_shard(block, mesh=mesh)

        assert trained(sharded) == trained(lambda block: block)
    finally:
        dist.destroy_process_group()


# -- modes, subclasses, transforms ---------------------------------------------------


@case
def flops_of_a_step_are_counted() -> None:
    with FlopCounterMode(display=False) as counter:
        loss(X, W, BIAS).backward()
    counts = counter.get_flop_counts()["Global"]
    product = 2 * 10 * 24 * 32
    assert {str(name): count for name, count in counts.items()} == {
        f"made_up.up_{part}": product for part in ("forward", "grad_x", "grad_w")
    }


@case
def gradients_without_memory_are_like_real_ones() -> None:
    wanted = gradients(up, (X, W, BIAS))
    with FakeTensorMode() as mode:
        found = gradients(up, [mode.from_tensor(one) for one in (X, W, BIAS)])
    for got, want in zip(found, wanted, strict=True):
        assert got is not None and want is not None
        assert (got.shape, got.stride(), got.dtype) == (
            (want.shape, want.stride(), want.dtype)
        )
    meta = [one.to("meta").requires_grad_() for one in PLAIN]
    words = "up: x must not require a gradient on the meta device"
    refused(lambda: torch.ops.made.up(*meta), words)


@case
def a_subclass_learns() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    pairs = [TwoTensor(one, 2 * one).requires_grad_() for one in PLAIN]
    found = gradients(up, pairs)
    assert {type(one) for one in found} == {TwoTensor}
    halves = [one.a for one in found], [one.b for one in found]  # type: ignore[union-attr]
    doubled = [(2 * one).requires_grad_() for one in PLAIN]
    equal(halves[0], gradients(up, (X, W, BIAS)))
    equal(halves[1], gradients(up, doubled))


@case
def torch_func_differentiates_once() -> None:
    wanted = torch.autograd.grad(loss(X, W, BIAS), (X, W, BIAS))
    every = torch.func.grad(loss, (0, 1, 2))
    equal(every(*PLAIN), wanted)
    equal(traced(every)(*PLAIN), wanted)
    result, pull = torch.func.vjp(up, *PLAIN)
    equal(pull(result), gradients(up, (X, W, BIAS)))
    x, w, bias = PLAIN
    equal([torch.func.grad(lambda x: loss(x, w, bias))(x)], wanted[:1])
    refused(
        lambda: torch.func.grad(lambda x: every(x, w, bias)[1].sum())(x), "up_forward"
    )

    def inner(x: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(loss(x, w, bias), x, create_graph=True)
        return found.float().sum()

    refused(lambda: torch.func.grad(inner)(x), ONCE)
    words = "up_forward: w must not require a gradient"
    refused(lambda: torch.func.grad(loss)(x, W, bias), words)
    with torch.no_grad():
        equal([torch.func.grad(loss)(x, W, bias)], wanted[:1])
    refused(lambda: torch.func.jvp(up, (x, w, bias), (x, w, bias)), "no tangent")


@case
def forward_derivatives_are_refused_at_any_level() -> None:
    """Below one that asks for a gradient too, where they were lost; of gradients."""
    for call in (up, rectified, added):
        x, w, bias = drawn(PLANS[call.__name__], learn=False)
        of_w = partial(lambda call, x, bias, w: call(x, w, bias), call, x, bias)
        of_x = partial(lambda call, w, bias, x: call(x, w, bias).sum(), call, w, bias)

        def value(x: Tensor, call: Any = call, w: Any = w, bias: Any = bias) -> Any:
            return torch.func.vjp(lambda w: call(x, w, bias), w)[0]

        refused(partial(torch.func.jvp, value, (x,), (x,)), "no tangent")
        refused(partial(torch.func.hessian(of_x), x), "no tangent")
        pull = torch.func.vjp(of_w, w)[1]
        refused(partial(torch.func.jvp, pull, (x @ w.T,), (x @ w.T,)), "no tangent")
    pull = torch.func.vjp(lambda bias: added(x, w, bias), bias)[1]
    grad = added(x, w, bias)
    refused(partial(torch.func.jvp, pull, (grad,), (grad,)), f"added {ONCE}")


@case
def every_level_of_torch_func_has_its_gradient() -> None:
    """A value is differentiated outside too, a gradient not again."""
    x, w, bias = drawn(PLANS["rectified"])
    value, pull = torch.func.vjp(lambda x: rectified(x, w, bias), x.detach())
    given = torch.randn_like(value)
    equal(
        torch.autograd.grad(value, (w, bias), given),
        torch.autograd.grad(rectified(x, w, bias), (w, bias), given),
    )
    refused(lambda: pull(given)[0].sum().backward(), f"rectified {ONCE}")
    whole = torch.func.grad(lambda y: y * rectified(x, w, bias).sum())
    found = torch.autograd.grad(whole(torch.ones(())), (x, w, bias))
    equal(found, torch.autograd.grad(rectified(x, w, bias).sum(), (x, w, bias)))


@case
def gradients_are_mapped() -> None:
    for plan in TRAINED:
        launcher, inputs = getattr(made, plan.name), drawn(plan, learn=False)
        places = tuple(at for at, one in enumerate(inputs) if isinstance(one, Tensor))

        def total(*given: Any, call: Any = launcher) -> Tensor:
            return sum(one.float().square().sum() for one in several(call(*given)))

        call = torch.func.grad(total, places)
        for place in places:
            items = torch.stack([inputs[place], 2 * inputs[place]])
            dims = [0 if at == place else None for at in range(len(inputs))]
            mapped = torch.vmap(call, tuple(dims))(
                *inputs[:place], items, *inputs[place + 1 :]
            )
            each = [call(*inputs[:place], one, *inputs[place + 1 :]) for one in items]
            close(mapped, [torch.stack(pair) for pair in zip(*each, strict=True)])
    x, w, bias = PLAIN

    def by_row(w: Tensor) -> Tensor:
        rows = torch.vmap(lambda row: up(row, w, bias))(x)
        return rows.float().square().sum()

    plain = torch.func.grad(lambda w: up(x, w, bias).float().square().sum())
    close([torch.func.grad(by_row)(w)], [plain(w)])


@case
def gradients_of_results_come_in_batches() -> None:
    """As `torch.autograd.functional.jacobian(vectorize=True)` asks for them."""
    for plan in TRAINED:
        inputs = drawn(plan)
        results = several(getattr(made, plan.name)(*inputs))
        learning = tensors(inputs)
        given = [torch.stack([one, 2 * one]).detach() for one in results]
        mapped = torch.autograd.grad(
            results, learning, given, is_grads_batched=True, retain_graph=True
        )
        for at in range(2):
            items = [one[at] for one in given]
            each = torch.autograd.grad(results, learning, items, retain_graph=True)
            close([one[at] for one in mapped], each)


# -- what verify finds ---------------------------------------------------------------


@case
def verify_finds_faults_of_traced_backwards() -> None:
    launcher, plan = made.rectified, PLANS["rectified"]
    one = importlib.import_module("made.rectified.grad_epilogue").GRAD_EPILOGUE
    assert check_operator(plan, launcher, CPU)

    def changed(change: Callable[[Tensor], Tensor]) -> Any:
        return lambda *inputs: [change(each) for each in before(*inputs)]

    def turned(each: Tensor) -> Tensor:
        return each.mT.contiguous().mT if each.ndim > 1 else each

    before = one.fake
    faults = {
        "other strides": changed(turned),
        "another type": changed(Tensor.double),
        "other sizes": changed(lambda each: each.new_empty([1, *each.shape])),
        "launched": one.launch,
    }
    for name, wrong in faults.items():
        one.fake = wrong
        try:
            check_operator(plan, launcher, CPU)
        except Exception:  # as for `verify`, to which all of them are faults
            continue
        finally:
            del one.fake
        raise AssertionError(f"not found: {name}")
    assert check_operator(plan, launcher, CPU)


@case
def verify_finds_gradients_that_are_traced_otherwise() -> None:
    launcher, plan = made.rectified, PLANS["rectified"]
    before = launcher.gradient.backward

    def wrong(*given: Any) -> Any:
        found = before(*given)
        seen = torch._C._len_torch_dispatch_stack()
        return tuple(one if one is None or not seen else 2 * one for one in found)

    launcher.gradient.backward = wrong
    try:
        check_operator(plan, launcher, CPU)
    except Wrong as error:
        assert "compiled: other gradients" in str(error), error
    else:
        raise AssertionError("not found")
    finally:
        launcher.gradient.backward = before


@case
def verify_finds_what_is_saved_for_nobody() -> None:
    gradient, before = rectified.gradient, rectified.gradient.saves
    gradient.saves = lambda needs, *given: before([True] * len(needs), *given)
    try:
        check_operator(PLANS["rectified"], rectified, CPU)
    except Wrong as error:
        assert "x is saved, though nothing else learns" in str(error), error
    else:
        raise AssertionError("not found")
    finally:
        gradient.saves = before


if __name__ == "__main__":
    interpreter.mend()
    run_all()
