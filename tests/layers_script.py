"""Modules of built kernels in models, in Triton's interpreter; a line for each case.

Prints a name and what went wrong, or nothing, both as Python has it. Runs beside the
kernels that test_layers.py builds, in `made`, and their spec.
"""

import copy
import pickle
import sys
from pathlib import Path

import made
import torch
from made import Down, Plain, Served, Up
from made._runtime.layers import replace_linears
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize, prune, weight_norm

from gemmgen.select.plan import load
from gemmgen.verification.contract.layers import check_layer
from gemmgen.verification.contract.replacements import check_replacements
from gemmgen.verification.example import subject
from gemmgen.verification.example.one_example import Wrong
from gemmgen.verification.interpret import interpreter
from gemmgen.verification.mutate.mutants import mutants
from tests.cases import case, refused, run_all


class Block(nn.Module):
    """An MLP with a stream of residuals, a head that is tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(12, 8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 12, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Logits."""
        x = self.embedding(ids)
        return self.head(x + self.mlp(x))


IDS = torch.tensor([[1, 5, 7], [0, 11, 2]])


@case
def a_model_computes_and_learns_as_it_did() -> None:
    """In fp64, where the order of a sum shows in the last digits alone."""
    torch.manual_seed(0)
    model = Block().double()
    own = copy.deepcopy(model)
    told = replace_linears(own, Plain, Up)
    assert [one.name for one in told] == ["mlp.0", "mlp.2", "head"]
    assert [one.by for one in told] == [Up, None, Plain], told
    assert "mlp.2: stays, not Up: gelu(x) does not follow it" in str(told[1])
    assert own.head.weight is own.embedding.weight
    assert [*own.state_dict()] == [*model.state_dict()]
    model.load_state_dict(own.state_dict())
    losses = [one(IDS).square().sum() for one in (model, own)]
    torch.testing.assert_close(*losses, rtol=1e-12, atol=0)
    for loss in losses:
        loss.backward()
    pairs = zip(model.named_parameters(), own.named_parameters(), strict=True)
    for (name, mine), (other, theirs) in pairs:
        assert name == other
        torch.testing.assert_close(theirs.grad, mine.grad, rtol=1e-10, atol=1e-12)


@case
def an_optimizer_goes_on() -> None:
    """It has the parameters, which are those of the modules now."""
    model = Block().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    replace_linears(model, Plain, Up)
    before = model.mlp[0].weight.clone()
    model(IDS).square().sum().backward()
    optimizer.step()
    assert not torch.equal(model.mlp[0].weight, before)


@case
def a_module_takes_the_operands_in_their_order() -> None:
    x, residual = torch.randn(2, 3, 8).double(), torch.randn(2, 3, 5).double()
    layer = Down(8, 5)
    wanted = 2.0 * F.linear(x, layer.weight, layer.bias) + residual
    torch.testing.assert_close(layer(x, 2.0, residual), wanted, rtol=1e-12, atol=1e-12)


@case
def what_has_no_gradient_says_so() -> None:
    layer, x = Served(8, 5), torch.randn(3, 8).half()
    try:
        layer(x)
    except ValueError as error:
        assert str(error).startswith("served: w must not require a gradient"), error
    else:
        raise AssertionError
    with torch.no_grad():
        wanted = F.silu(F.linear(x.float(), layer.weight.float(), layer.bias))
        torch.testing.assert_close(layer(x), wanted.half(), rtol=2e-3, atol=1e-3)


@case
def parameters_have_the_kernel_s_types() -> None:
    types = [one.dtype for one in Served(8, 5).parameters()]
    assert types == [torch.float16, torch.float32]
    types = [one.dtype for one in Served(8, 5, dtype=torch.float32).parameters()]
    assert types == [torch.float32, torch.float32]
    assert Plain(8, 5, device="meta").weight.is_meta and Plain(8, 5).bias is None
    for wrong, kind in ((True, Plain), (False, Up)):
        try:
            kind(8, 5, bias=wrong)
        except ValueError as error:
            wanted = f"{kind.__name__}: bias must be {not wrong}, as "
            assert str(error).startswith(wanted), error
        else:
            raise AssertionError


@case
def autocast_has_weights_of_another_type() -> None:
    layer, x = Served(8, 5, dtype=torch.float32), torch.randn(3, 8)
    with torch.no_grad(), torch.autocast("cpu", torch.float16):
        own = layer(x)
    assert own.dtype == torch.float16


@case
def a_module_can_be_saved_and_copied() -> None:
    layer, x = Plain(8, 5), torch.randn(3, 8).double()
    for other in (pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
        assert type(other) is Plain and torch.equal(other(x), layer(x))
    assert made.Plain is Plain and "Plain" in dir(made)


@case
def what_torch_s_tools_changed_is_left() -> None:
    """Pruned, normalized and parametrized ones compute their weight at each call."""
    changed = [nn.Linear(8, 8, False).double() for _ in range(3)]
    prune.l1_unstructured(changed[0], "weight", 0.5)
    weight_norm(changed[1])
    parametrize.register_parametrization(changed[2], "weight", nn.Identity())
    model = nn.Sequential(*changed)
    told = replace_linears(model, Plain)
    assert [one.by for one in told] == [None] * 3, told
    assert [*model] == changed


@case
def torch_s_own_models_go_on() -> None:
    """An encoder has its Linear's parameters read by name, and calls others."""
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16, 0.0, bias=True, batch_first=True)
    model = model.double()
    own, x = copy.deepcopy(model), torch.randn(2, 3, 8).double()
    told = {one.name: one for one in replace_linears(own, Affine)}
    assert told["linear1"].by is told["linear2"].by is Affine
    assert "NonDynamicallyQuantizableLinear" in told["self_attn.out_proj"].reason
    torch.testing.assert_close(own(x), model(x), rtol=1e-10, atol=1e-12)


@case
def a_bias_that_learns_beside_a_frozen_weight_needs_a_gradient() -> None:
    model = nn.Sequential(nn.Linear(8, 5).half(), nn.SiLU())
    model[0].bias = nn.Parameter(model[0].bias.detach().float())
    model[0].weight.requires_grad_(False)
    (told,) = replace_linears(model, Served)
    assert told.by is None and "in training" in told.reason, told
    model[0].bias.requires_grad_(False)
    (told,) = replace_linears(model, Served)
    assert told.by is Served, told


@case
def a_class_that_does_more_or_is_none_is_refused() -> None:
    wrongs = {
        Down: "Down takes or returns more",
        nn.Linear: "Linear is no class of a kernel",
        made.plain: "plain is no class of a kernel",
    }
    for wrong, words in wrongs.items():
        refused(lambda wrong=wrong: replace_linears(Block(), wrong), words)


@case
def a_shared_activation_is_taken_away_where_it_goes() -> None:
    """The one instance stays in its other place."""
    act = nn.GELU()
    model = nn.Sequential(
        nn.Linear(8, 8), act, nn.Linear(8, 8), nn.LayerNorm(8), act
    ).double()
    own, x = copy.deepcopy(model), torch.randn(3, 8).double()
    replace_linears(own, Up)
    assert [type(one) for one in own][:2] == [Up, nn.Identity]
    assert own[4] is not own[1] and isinstance(own[4], nn.GELU)
    torch.testing.assert_close(own(x), model(x), rtol=1e-10, atol=1e-12)


@case
def every_fault_of_a_module_is_found() -> None:
    cpu, found = torch.device("cpu"), 0
    for plan in (one for one in load(Path("spec.yaml")) if one.module):
        path = Path("made") / plan.name
        text = (path / "module.py").read_text()
        for one in (None, *mutants(plan, "module", text)):
            (path / "module.py").write_text(one.source if one else text)
            module = subject.load(path / "__init__.py")
            try:
                check_layer(plan, module, cpu)
                check_replacements(plan, module, cpu)
            except (Wrong, TypeError, ValueError, RuntimeError):
                assert one is not None, plan.name
                found += 1
            else:
                assert one is None, f"{one.name} of {plan.name}"
            finally:
                (path / "module.py").write_text(text)
                subject.forget()
    assert found >= 6 * 5, found


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    interpreter.mend()
    Affine = made.Affine
    run_all(sys.argv[1:])
