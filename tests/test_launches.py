"""Launchers on the stand-in for a GPU: healthy ones pass, those with a hole fail.

In other processes, for the stand-in stays in one that has it.
"""

import ast
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from gemmgen.output import alone, builder
from gemmgen.render.names.parts import RUNTIME
from gemmgen.select.plan import Plan, load
from gemmgen.verification.basics.outcome import Outcome
from gemmgen.verification.faults.host import host_families, on_the_host
from gemmgen.verification.mutate.mutants import mutated
from gemmgen.verification.run.pool import run_launches
from gemmgen.verification.run.process import Subject
from tests import folders
from tests.once import asked, once
from tests.own import OWN
from tests.slow import all_but

ROUNDS = (
    "round_f32_to_tf32"
    in pytest.importorskip(
        "triton.tools.tensor_descriptor"
    ).TensorDescriptor.__dataclass_fields__
)

NAMES = (
    "linear_bias_silu_residual",  # descriptors of every role, parts of K, warp roles
    "gemm_nn_bf16_alpha_beta",  # numbers
    "linear_gelu_aux",  # two results
    "linear_clamp",  # tf32
    "study_matmul",  # configurations that race
)
PLANS: dict[str, Plan] = {name: plan for name, plan in OWN.items() if name in NAMES}


def written(
    folder: Path, kernel: str, change: tuple[str, str] | None = None
) -> Subject:
    """The folder of one kernel, with a text of all its modules replaced, if any."""
    plan = PLANS[kernel]
    texts = folders.committed(plan)
    changed = folders.replaced(texts, *change) if change else texts
    return Subject(plan, folders.written(folder, plan, changed))


@dataclass(frozen=True)
class Hole:
    """A fault of a file that launchers share: its kind, what the text has no more."""

    file: str
    family: str
    lost: str
    kernel: str = "linear_bias_silu_residual"


KEY, CONDITION = "part of a key dropped", "condition dropped"
HOLES = {
    "key without shape": Hole("repeats.py", KEY, "one.shape"),
    "key without strides": Hole("repeats.py", KEY, "one.stride()"),
    "key without dtype": Hole("repeats.py", KEY, "one.dtype"),
    "key without device": Hole("repeats.py", KEY, "one.get_device()"),
    "key without alignment": Hole("repeats.py", KEY, "address & 15"),
    "key without neg bit": Hole("repeats.py", KEY, "one.is_neg()"),
    "key without sign": Hole(
        "repeats.py",
        "statement dropped",
        "key.append(math.copysign(1.0, number))",
        "gemm_nn_bf16_alpha_beta",
    ),
    "stream left out": Hole("replay.py", KEY, "stream(index)"),
    "compiled for another device": Hole("packed.py", KEY, "launch.device.index, "),
    "current device forgotten": Hole(
        "launch_cache.py", CONDITION, "repeat.device != current_device()"
    ),
    "on_device dropped": Hole(
        "replay.py", "with dropped", "with on_device(launch.device)"
    ),
    "capture forgotten": Hole(
        "replay.py", CONDITION, "torch.cuda.is_current_stream_capturing()"
    ),
    "workspace of a graph shared": Hole(
        "launch.py", CONDITION, "torch.cuda.is_current_stream_capturing()"
    ),
    "record of all threads": Hole("table.py", "threads share", "threading.local"),
    "global scratch ignored": Hole(
        "replay.py", "never taken", "if kernel.metadata.global_scratch_size"
    ),
    "tf32 not noted": Hole(
        "launch.py", "never taken", "if not ROUNDS and any", "linear_clamp"
    ),
    "addresses not compared": Hole(
        "launch_cache.py", "never taken", "if launch.addresses != addresses_of("
    ),
    "gaps between leading axes": Hole(
        "repeats.py", CONDITION, "not tensor.is_contiguous()"
    ),
    "leading axes of another operand": Hole(
        "repeats.py", CONDITION, "shape[:count] != leading or not count"
    ),
    "rows of another operand, at once": Hole(
        "families.py", "never taken", "if inputs[place].shape[0] != M"
    ),
    "alignment forgotten": Hole("families.py", "never taken", "bits % ALIGNED"),
    "rows too far": Hole("families.py", CONDITION, "self.most < M"),
    "rows of another device": Hole(
        "launch_cache.py", CONDITION, "family.device == current_device()"
    ),
    "hooks forgotten": Hole("launch_cache.py", CONDITION, "hooked()"),
    "a hook forgotten": Hole(
        "launch_cache.py", CONDITION, "HOOKS.launch_enter_hook.calls"
    ),
    "hooks forgotten at first": Hole("replay.py", CONDITION, "hooked()"),
    "signatures not bounded": Hole(
        "launch_cache.py", "limit dropped", "MOST_CALLS = 1024"
    ),
    "families not bounded": Hole(
        "launch_cache.py", "limit dropped", "MOST_FAMILIES = 1024"
    ),
    "addresses not bounded": Hole("replay.py", "limit dropped", "MOST_ARGUMENTS = 64"),
    "memory for profiling ignored": Hole(
        "replay.py", CONDITION, "kernel.metadata.profile_scratch_size"
    ),
    "not tried first": Hole("replay.py", CONDITION, "not replays_work(launch.device)"),
    "kernels of a folder confused": Hole("packed.py", KEY, "launch.kernel.fn, "),
    "warps and stages forgotten": Hole("packed.py", KEY, ", *launch.options.values()"),
    "nothing remembered": Hole(
        "replay.py",
        "statement dropped",
        "RECORD.launches.append((launch, found))",
    ),
    "version of out stays": Hole(
        "repeats.py",
        "statement dropped",
        "mark_written(one)",
    ),
    "torch's comparison not used": Hole(
        "repeats.py",
        "statement dropped",
        "strides.append([*[None] * loose, *one.stride()[loose:]])",
    ),
    "torch's comparison not doubted": Hole("repeats.py", CONDITION, "any_rows(other)"),
    "given results not bounded": Hole(
        "support.py", "never taken", "len(self) >= self.most"
    ),
    "warm-up that is not waited for": Hole(
        "families.py",
        "statement dropped",
        "torch.cuda.synchronize(",
    ),
    "warm-up that leaves out its own rows": Hole(
        "families.py", "most rows not warmed", "range(1, most + 1)"
    ),
    "warm-up of one kind of parts": Hole(
        "families.py", "parts of one kind warmed", "(M, splits)"
    ),
    "tiles in another order": Hole(
        "tile.py", "value of another key", "'GROUP_M': 'group_m'"
    ),
    "overlap not looked for": Hole(
        "launch_cache.py",
        "never taken",
        "not keep_apart(repeat.overlaps, addresses)",
    ),
}
"""By what a launcher gets wrong, for calls that it remembers."""
PLANTED = {
    "tensors kept alive": ("replay.py", "launch.of_rows(0), found", "launch, found"),
    "gaps between leading axes, at once": (
        "families.py",
        " != leading or not tensor.is_contiguous():",
        " != leading:",
    ),
    "leading axes of another operand, at once": (
        "families.py",
        "tensor.shape[:count] != leading or not tensor",
        "not tensor",
    ),
    "gradients forgotten": (
        "families.py",
        "(family.requires_grad and grad_enabled) is not differentiated",
        "False",
    ),
}
"""The same of kinds that the self-test does not make: a file, a text, another."""


def mutant(hole: Hole) -> str:
    """The one text of a file that has the fault."""
    source = folders.text_of(RUNTIME, hole.file.removesuffix(".py"))
    whole = ast.unparse(ast.parse(source)).count(hole.lost)
    found = [
        one.source
        for one in mutated(source, host_families(), on_the_host)
        if one.family == hole.family
        and ast.unparse(ast.parse(one.source)).count(hole.lost) < whole
    ]
    assert found, hole
    return found[0]


def tried(names: Collection[str], root: Path) -> dict[str, Outcome]:
    """Holes, each in a folder of its own, launched on the stand-in."""
    subjects = {}
    for name in names:
        hole = HOLES.get(name)
        own = subjects[name] = written(
            root / name.replace(" ", "_"), hole.kernel if hole else Hole.kernel
        )
        file, changed = (hole.file, mutant(hole)) if hole else planted(name)
        alone.write(own.folder, {f"{RUNTIME}/{file}": changed})
    found = run_launches(list(subjects.values()), "ci", 0)
    return dict(zip(subjects, found, strict=True))


def planted(name: str) -> tuple[str, str]:
    """A file of `PLANTED`, and its text with the fault."""
    file, text, other = PLANTED[name]
    source = folders.text_of(RUNTIME, file.removesuffix(".py"))
    assert source.count(text) == 1
    return file, source.replace(text, other)


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    """What becomes of each hole whose test runs."""
    return once(tmp_path_factory, "launches", partial(tried, asked(request)))


EVERY = (*HOLES, *PLANTED)
FAST = {"key without shape", "key without sign", "compiled for another device"}


@pytest.mark.parametrize("name", all_but(FAST, EVERY))
def test_a_launcher_with_a_hole_fails(name: str, outcomes: dict[str, Outcome]) -> None:
    if name == "tf32 not noted" and ROUNDS:
        pytest.skip("descriptors of this Triton round by themselves")
    assert not outcomes[name].ok


@pytest.mark.slow  # as in test_verification.py
@pytest.mark.parametrize("name", NAMES)
def test_a_healthy_launcher_passes(tmp_path: Path, name: str) -> None:
    (outcome,) = run_launches([written(tmp_path, name)], "quick", 0)
    assert (outcome.status, outcome.detail) == ("passed", "")
    assert outcome.check == "launches" and outcome.examples > 500


ROWLESS = """\
gemmgen: 1
targets: [sm_80]
kernels:
  - name: turned
    op: gemm
    layout: TT
    dtype: fp32
    tiles: {m: 16, n: 16, k: 16}
    schedule: tiled
    epilogue: tanh(acc)
    grad: true
"""


@pytest.mark.slow
def test_a_call_that_learns_without_rows_is_known_one_call_later(
    tmp_path: Path,
) -> None:
    """A is stored the other way round: such a signature is kept when it comes again."""
    spec = tmp_path / "spec.yaml"
    spec.write_text(ROWLESS)
    builder.build([spec], tmp_path / "made")
    plan, *_ = load(spec)
    path = tmp_path / "made" / "turned" / "__init__.py"
    (outcome,) = run_launches([Subject(plan, path)], "quick", 0)
    assert (outcome.status, outcome.detail) == ("passed", "")
