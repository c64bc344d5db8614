"""A kernel as a node of a graph: of torch.compile, and of torch.jit.trace."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gemmgen.verification.example.one_example import Wrong, several
from gemmgen.verification.operators.entered import Entered


def check_compiled(one: Entered) -> None:
    """It compiles as one node of a graph, and passes what torch checks of operators."""
    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(one.launcher, backend=backend, fullgraph=True)
    one.same("compiled", compiled(*one.inputs))
    calls = [node.target for node in graphs[0].graph.nodes if "call" in node.op]
    if calls[:1] != [one.overload]:
        raise Wrong(f"compiled to {calls}")
    try:
        one.check_by_torch(False, lambda inputs: several(one.launcher(*inputs)))
    except Exception as error:
        raise Wrong(f"opcheck: {error}") from error


def check_recorded(one: Entered) -> None:
    """To `torch.jit.trace` it is one operator."""
    check_records(one.overload, one.launcher, one.inputs)


def check_records(
    overload: Any, launcher: Callable[..., Any], inputs: Sequence[Any]
) -> None:
    """Raise `Wrong` unless `torch.jit.trace` records a call as one operator."""
    places = [at for at, one in enumerate(inputs) if isinstance(one, Tensor)]

    def call(*tensors: Tensor) -> Any:
        given = dict(zip(places, tensors, strict=True))
        return launcher(*(given.get(at, one) for at, one in enumerate(inputs)))

    tensors = tuple(inputs[at] for at in places)
    graph = torch.jit.trace(call, tensors, check_trace=False).graph
    kinds = [node.kind() for node in graph.nodes()]
    if kinds.count(overload.name()) != 1:
        raise Wrong(f"torch.jit.trace records {kinds}")
