"""Healthy kernels pass and planted faults die, in the interpreter, through the pool."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from gemmgen.select.plan import Plan, plans
from gemmgen.spec.parse import parse
from gemmgen.verification.basics.outcome import Outcome
from gemmgen.verification.run import pool, process, worker
from tests import folders
from tests.once import asked, once
from tests.slow import all_but

SPEC = """
gemmgen: 1
defaults: {dtype: fp16, tiles: {m: 16, n: 32, k: 16}}
kernels:
  - {name: layer, op: linear, epilogue: "relu(acc + bias[n])"}
  - {name: plain, op: gemm, layout: TN, dtype: fp32}
  - {name: rounded, op: gemm, layout: NN, dtype: fp32, precision: tf32}
  - name: scaled
    op: gemm
    layout: NT
    dtype: bf16
    epilogue: alpha[] * acc + residual[m, n] * scale[m]
    tiles: [{m: 16, n: 16, k: 16}, {m: 32, n: 16, k: 16}]
  - name: raced
    op: gemm
    layout: NN
    autotune: runtime
    tiles: [{m: 16, n: 16, k: 16}, {m: 16, n: 32, k: 32}]
  - name: double
    op: gemm
    layout: TT
    dtype: fp64
    epilogue: alpha[] * acc
  - name: pair
    op: linear
    dtype: bf16
    epilogue: |
      pre = acc + bias[n]
      out = gelu(pre)
    outputs: {out: bf16, pre: fp32}
"""
PLANS: dict[str, Plan] = {
    one.name: one for one in plans(parse(SPEC.encode(), "spec.yaml"))
}


@dataclass(frozen=True)
class Fault:
    """A kernel, what of its text is replaced, and what the verdict must say."""

    kernel: str
    before: str
    after: str
    says: str = ""
    status: str = "failed"


Texts = dict[str, str]

FAULTS: dict[str, Fault] = {
    "fp16 accumulator": Fault(
        "layer",
        "acc = tl.dot(x, w, acc)",
        "acc = tl.dot(x, w, acc.to(tl.float16), out_dtype=tl.float16).to(tl.float32)",
    ),
    "last K block lost": Fault(
        "plain", "range(0, K, BLOCK_K)", "range(0, K - BLOCK_K, BLOCK_K)"
    ),
    "second K block lost": Fault(
        "plain",
        "acc = tl.dot(a, b, acc",
        "acc = tl.dot(a if k != BLOCK_K else a * 0.0, b, acc",
        says="as if K block 1 (k 64 to ",
    ),
    "last product lost": Fault("plain", "offs_k < K - k", "offs_k < K - k - 1"),
    "sum not carried on": Fault("layer", "tl.dot(x, w, acc)", "tl.dot(x, w)"),
    "mask m one too far": Fault(
        "layer",
        "BLOCK_M, M, INDEX)",
        "BLOCK_M, M + 1, INDEX)",
        says="outside every argument",
    ),
    "mask n one too far": Fault(
        "layer",
        "BLOCK_N, N, INDEX)",
        "BLOCK_N, N + 1, INDEX)",
        says="outside every argument",
    ),
    "mask k one too far": Fault(
        "plain", "offs_k < K - k", "offs_k <= K - k", says="outside every argument"
    ),
    "mask of a load dropped": Fault(
        "layer",
        "mask=mask_m[:, None] & mask_k[None, :], other=0.0",
        "mask=mask_k[None, :], other=0.0",
        says="load outside every argument",
    ),
    "store past the end": Fault(
        "layer",
        "y, mask=mask_m[:, None] & mask_n[None, :])",
        "y, mask=mask_n[None, :])",
        says="store outside every argument",
    ),
    "strides swapped": Fault(
        "plain",
        "offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak",
        "offs_m[:, None] * stride_ak + offs_k[None, :] * stride_am",
    ),
    "stride taken to be 1": Fault(
        "layer", "offs_k[None, :] * stride_xk", "offs_k[None, :]"
    ),
    "stride of the result taken to be 1": Fault(
        "scaled", "offs_n[None, :] * stride_cn", "offs_n[None, :]"
    ),
    "bias misindexed": Fault(
        "layer", "offs_n * stride_bias_n", "(offs_n // 2) * stride_bias_n"
    ),
    "bias of the first tile only": Fault(
        "layer", "offs_n * stride_bias_n", "(offs_n % BLOCK_N) * stride_bias_n"
    ),
    "bias dropped": Fault("layer", "acc + bias[None, :]", "acc"),
    "bias doubled": Fault("layer", "acc + bias[None, :]", "acc + 2 * bias[None, :]"),
    "alpha dropped": Fault("scaled", "alpha * acc", "acc"),
    "scale dropped": Fault("scaled", " * scale[:, None]", ""),
    "relu drops NaN": Fault("layer", ", propagate_nan=tl.PropagateNan.ALL", "", "nan"),
    "relu before the bias": Fault(
        "layer", "relu(acc + bias[None, :])", "relu(acc) + bias[None, :]"
    ),
    "second result is the first": Fault("pair", "pre_offs, pre,", "pre_offs, out,"),
    "int32 offsets": Fault(
        "layer",
        "index_dtype(*tensors)",
        "index_dtype()",
        says="beyond 2^31",
    ),
    "int32 steps along K": Fault(
        "plain",
        "tl.full((), BLOCK_K, INDEX)",
        "tl.full((), BLOCK_K, tl.int32)",
        says="elements beyond 2^31 along axis 0 of a",
    ),
    "last group of tiles as high as the others": Fault(
        "layer", "min(tiles_m - first_m, GROUP_M)", "GROUP_M"
    ),
    "a program too few": Fault(
        "layer",
        '"tiled": one_a_split',
        '"tiled": lambda *given: (max(1, one_a_split(*given)[0] - 1), 1)',
    ),
    "tf32 where ieee was promised": Fault(
        "plain", 'input_precision="ieee"', 'input_precision="tf32"'
    ),
    "result rounded on the way": Fault(
        "pair",
        "pre = acc + bias[None, :]",
        "pre = (acc + bias[None, :]).to(tl.bfloat16).to(tl.float32)",
    ),
    "one configuration wrong": Fault(
        "raced",
        "BLOCK_N, N, INDEX)",
        "BLOCK_N, N - (BLOCK_K == 32), INDEX)",
        says="tile 16x32x32",
    ),
    "alpha in fp32": Fault("double", "alpha: tl.float64", "alpha"),
    "wrong argument named": Fault(
        "plain", '"b", b, (', '"a", b, (', says="the message is not 'plain: b must"
    ),
    "does not import": Fault(
        "plain", "import torch\n", "import nowhere\n", "ModuleNotFoundError", "error"
    ),
    "unknown name in the kernel": Fault(
        "plain", "tl.zeros", "tl.noughts", "noughts", "error"
    ),
    "dies": Fault(
        "plain",
        "    K, M = CHECK.tensor(",
        "    __import__('os').abort()\n    K, M = CHECK.tensor(",
        "killed by SIGABRT",
        "crashed",
    ),
    "runs out of memory": Fault(
        "plain",
        "    LAUNCHES.run(a, b, c)\n",
        "    raise torch.OutOfMemoryError('no more')\n",
        "OutOfMemoryError: no more",
        "out of resources",
    ),
    "first item for all": Fault(
        "layer", "value.select(dim, i)", "value.select(dim, 0)", "under vmap"
    ),
    "items along another axis": Fault(
        "layer", "one.movedim(dim, 0)", "one.movedim(1, 0)", "under vmap"
    ),
    "fp64 cast by autocast": Fault(
        "layer", "one.dtype != torch.float64", "True", "autocast of x: accepted"
    ),
    "operations of the first rows": Fault(
        "layer",
        "2 * shapes[0].numel()",
        "2 * shapes[0][0] * shapes[0][-1]",
        "operations, not",
    ),
}


def subject(
    folder: Path, plan: Plan, edit: Callable[[Texts], Texts] = dict
) -> process.Subject:
    """A kernel in a folder of its own, with its files edited."""
    texts = edit(folders.rendered(plan))
    return process.Subject(plan, folders.written(folder, plan, texts), "spec.yaml")


def planted(fault: Fault, texts: Texts) -> Texts:
    return folders.replaced(texts, fault.before, fault.after)


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    """The healthy and faulty kernels of the tests that run, verified in one go."""
    return once(tmp_path_factory, "verify", partial(verified, asked(request)))


def verified(names: Sequence[str], root: Path) -> dict[str, Outcome]:
    """The outcomes of kernels and of faults, by name."""
    subjects = []
    for name in names:
        fault = FAULTS.get(name)
        plan = PLANS[fault.kernel if fault else name]
        edit = partial(planted, fault) if fault else dict
        subjects.append(subject(root / name.replace(" ", "_"), plan, edit))
    found = pool.run_properties(subjects, "cpu", "quick", 7)
    return dict(zip(names, found, strict=True))


@pytest.mark.slow  # as in test_verification.py
@pytest.mark.parametrize("name", PLANS)
def test_a_healthy_kernel_passes(name: str, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[name]
    assert (outcome.status, outcome.detail) == ("passed", "")
    assert outcome.examples > 50
    assert outcome.worst <= 1.01


# One of each kind, and each that is told in words of its own.
QUICK = {"last K block lost", "mask of a load dropped", "strides swapped"}
QUICK |= {"int32 offsets", "wrong argument named", "dies", "does not import"}
QUICK |= {"runs out of memory"}


@pytest.mark.parametrize("name", all_but(QUICK, FAULTS))
def test_a_planted_fault_dies(name: str, outcomes: dict[str, Outcome]) -> None:
    outcome, fault = outcomes[name], FAULTS[name]
    assert outcome.status == fault.status, outcome
    assert fault.says in outcome.detail
    repeat = f"gemmgen verify spec.yaml --only {fault.kernel} --seed 7 --cpu"
    assert outcome.detail.splitlines()[-1] == repeat


@dataclass
class HangClock:
    """Seconds that pass while a kernel hangs and at no other time, some at each look.

    So a busy machine cannot use up a limit. A kernel that hangs writes the number of
    its process into `process`; with that process the hang is over.
    """

    process: Path
    seconds: float = field(default=0.0, init=False)

    def monotonic(self) -> float:
        with suppress(FileNotFoundError, ProcessLookupError, ValueError):
            os.kill(int(self.process.read_text()), 0)
            self.seconds += 5.0
        return self.seconds

    def hang(self, condition: str) -> str:
        """Lines of a launcher that hang as long as a condition holds."""
        return (
            f"    import os, pathlib, time\n"
            f"    hanging = pathlib.Path({str(self.process)!r})\n"
            f"    while {condition}:\n"
            f"        hanging.write_text(str(os.getpid()))\n"
            f"        time.sleep(0.1)\n"
        )


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HangClock:
    """The clock by which processes are found to hang."""
    clock = HangClock(tmp_path / "hangs")
    monkeypatch.setattr(process, "time", clock)
    monkeypatch.setattr(process, "_WATCH_SECONDS", 0.01)
    return clock


@pytest.mark.slow
def test_a_kernel_that_hangs_is_ended(
    tmp_path: Path, clock: HangClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = "    K, M = CHECK.tensor("
    hang = Fault("plain", check, clock.hang("True") + check)
    subjects = [
        subject(tmp_path / "hang", PLANS["plain"], partial(planted, hang)),
        replace(subject(tmp_path / "fine", PLANS["double"]), file="tiled"),
    ]
    monkeypatch.setattr(pool, "_cores", lambda: 1)
    done: list[Outcome] = []
    found = pool.run_properties(subjects, "cpu", "quick", 7, done.append)
    assert [one.status for one in found] == ["timed out", "passed"]
    assert "no answer for 180 s" in found[0].detail
    assert done == found


@pytest.mark.slow
def test_a_kernel_that_takes_too_much_memory_is_ended(
    tmp_path: Path, clock: HangClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_MOST_BYTES", 2**30)
    greedy = Fault(
        "plain",
        "    K, M = CHECK.tensor(",
        "    kept = []\n"
        "    while len(kept) < 64:\n"
        "        kept.append(torch.ones(2**23))\n"
        "    while True: __import__('time').sleep(60)\n"
        "    K, M = CHECK.tensor(",
    )
    one = subject(tmp_path / "own", PLANS["plain"], partial(planted, greedy))
    (found,) = pool.run_properties([one], "cpu", "quick", 7)
    assert found.status == "out of resources"
    assert "takes " in found.detail


def test_what_does_not_compile_is_told_apart(tmp_path: Path) -> None:
    wrong = Fault("plain", "tl.zeros((BLOCK_M, BLOCK_N)", "tl.zeros((BLOCK_M, 3)")
    one = subject(tmp_path / "own", PLANS["plain"], partial(planted, wrong))
    order = {"path": str(one.path), "part": {}, "profile": "ci", "seed": 7}
    compiled = worker._compiled(one.plan, order, print)
    assert (compiled.check, compiled.status) == ("compiled", "compile error")


def test_every_tile_that_is_compiled_is_a_sign_of_life(tmp_path: Path) -> None:
    """All of a kernel's together may take longer than a process may be silent."""
    one = subject(tmp_path / "own", PLANS["plain"])
    said: list[str] = []
    order = {"path": str(one.path), "part": {}, "profile": "ci", "seed": 7}
    outcome = worker._compiled(one.plan, order, said.append)
    assert outcome.status == "passed" and outcome.examples == len(said) > 1


@pytest.mark.slow
def test_what_starved_beside_others_is_run_alone(
    tmp_path: Path, clock: HangClock
) -> None:
    """As on a GPU, but that the process interprets; what it waits for is a file."""
    lock, check = tmp_path / "lock", "    K, M = CHECK.tensor("
    held = f"pathlib.Path({str(lock)!r}).exists()"
    wait = Fault("double", check, clock.hang(held) + check)
    lock.touch()
    one = subject(tmp_path / "own", PLANS["double"], partial(planted, wait))
    task = pool._parts(process.Run("cpu", "quick", 7), one, 1)
    (starved,) = pool._run_all([{"TRITON_INTERPRET": "1"}], [task], None)
    assert starved.status == "timed out"
    lock.unlink()
    (alone,) = pool._again_alone([{"TRITON_INTERPRET": "1"}], [task], [starved])
    assert (alone.status, alone.detail) == ("passed", "")


def test_draws_do_not_depend_on_how_many_share_a_kernel(tmp_path: Path) -> None:
    import torch

    from gemmgen.verification.basics.profiles import PROFILES
    from gemmgen.verification.run.trial import Trial

    def draws(device: str, profile: str, tiles: int) -> list[int]:
        trial = Trial(PLANS["plain"], tmp_path, torch.device(device), print)
        return trial.draws(PROFILES[profile], tiles)

    assert draws("cuda", "quick", 2) == [5] * 6
    assert draws("cuda", "quick", 1) == [5] * 12
    assert draws("cuda", "ci", 2) == [75, 75]
    assert draws("cuda", "ci", 3) == draws("cpu", "ci", 3) == [100]
    assert draws("cuda", "deep", 2) == [750, 750]
    assert draws("cpu", "quick", 1) == [60]


def test_deep_tries_first_what_failed_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from gemmgen.verification.basics.failure import Fault as Failure
    from gemmgen.verification.basics.profiles import PROFILES
    from gemmgen.verification.cases.cases import Case
    from gemmgen.verification.example.subject import Variant
    from gemmgen.verification.oracle.comparison import Block
    from gemmgen.verification.run.trial import Trial

    monkeypatch.chdir(tmp_path)
    tried: list[Case] = []

    class Picky(Trial):
        def case(self, case: Case, variant: Variant) -> float:
            tried.append(case)
            if case.kind == "special" and case.n > 16:
                raise Failure("failed", "as planted")
            return 0.0

    trial = Picky(PLANS["plain"], tmp_path, torch.device("cpu"), print)
    variant = Variant(Block(16, 32, 16), ())
    profile = replace(PROFILES["deep"], climbs=False)
    for number in (1, 2):
        before = len(tried)
        with pytest.raises(Failure):
            trial.drawn(variant, profile, 300, number)
    assert tried[before].kind == "special" and tried[before].n > 16


@pytest.mark.slow
def test_processes_wait_for_their_first_job_and_end_unused(tmp_path: Path) -> None:
    one = subject(tmp_path / "own", PLANS["plain"], lambda text: text)
    with pool.Ready() as ready:
        started = list(ready.idle)
        outcomes = pool.run_checks([one], "cpu", "quick", 7, None, ready)
    assert all(outcome.ok for outcome in outcomes)
    assert started and not ready.idle
    with pool.Ready() as ready:
        pass
    assert all(process.worker.returncode is not None for process in ready.idle)
