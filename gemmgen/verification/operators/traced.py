"""A kernel as a node of a graph: of torch.compile, and of torch.jit.trace."""

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
    places = [place for place, *_ in one.tensors()]

    def call(*tensors: Tensor) -> Any:
        given = dict(zip(places, tensors, strict=True))
        every = (given.get(at, other) for at, other in enumerate(one.inputs))
        return one.launcher(*every)

    tensors = tuple(given for *_, given in one.tensors())
    graph = torch.jit.trace(call, tensors, check_trace=False).graph
    kinds = [node.kind() for node in graph.nodes()]
    if kinds.count(one.overload.name()) != 1:
        raise Wrong(f"torch.jit.trace records {kinds}")
