"""Holds the oracle's bound against this GPU: healthy results under it, faults over it.

    python benchmarks/verification/calibrate_error.py [--markdown FILE] [--cpu]

Healthy results are those of the kernels in generated/. Faults that every element
suffers are planted in the kernel: its tiled.py is edited as `verify --self-test` edits
it (the accumulator rounded to fp16 after each K block, the last of K masked), or its
precision is replaced (tf32 for ieee), and the edited kernel runs, in schedule tiled
alone, so that no other computes in its place. Faults of a single
element cannot be edited into a kernel: there the healthy result's element is replaced
by what float64 gives without the lost block or product, rounded as the kernel rounds.
A lost part whose products add up to 0 changes nothing, so another one is lost.
With --cpu torch computes both kinds in place of the kernels, in fp32 or fp64, from
operands cut to tf32 by hand: that tries the oracle and this script, no hardware.
Exits with 1 if a healthy result is refused, or a fault passes both tiers.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from gemmgen.output import alone  # noqa: E402
from gemmgen.render import render  # noqa: E402
from gemmgen.render.names.parts import file_of  # noqa: E402
from gemmgen.schedules.parts.tile import FALLBACK  # noqa: E402
from gemmgen.select.plan import Plan, load  # noqa: E402
from gemmgen.verification.cases.data import KINDS, Source  # noqa: E402
from gemmgen.verification.example import subject  # noqa: E402
from gemmgen.verification.mutate.mutants import mutants  # noqa: E402
from gemmgen.verification.oracle.comparison import Block, Verdict, judged  # noqa: E402
from gemmgen.verification.oracle.reference import (  # noqa: E402
    Inputs,
    rounded,
    torch_dtype,
)

PATHS = {
    "fp16": "gemm_nn_fp16",
    "fp16 to fp32": "gemm_nn_fp16_to_fp32",
    "bf16": "gemm_nn_bf16",
    "fp32 ieee": "gemm_nn_fp32",
    "tf32": "gemm_nn_tf32",
    "tf32x3": "gemm_nn_tf32x3",
    "fp64": "gemm_nn_fp64",
}
HEALTHY_KINDS = ("normal", "positive", "scattered", "narrow", "wide")
HEALTHY_K = (17, 64, 1000, 8192)
INTEGERS = ("narrow", "wide")
SIDE, K, LOST = 96, 8192, 32
BLOCK = Block(16, 16, LOST)
Kernel = Callable[[Tensor, Tensor], Tensor]


@dataclass
class Bench:
    """The device, the plans and the kernels of the generated folder."""

    device: torch.device
    plans: dict[str, Plan]
    folder: Path

    def kernel(self, name: str, edit: str = "") -> Kernel:
        """A kernel, healthy or with a fault that is edited into its tiled.py."""
        plan = self.plans[name]
        if self.device.type == "cpu":
            return lambda a, b: _in_torch(plan, a, b, edit)
        if not edit:
            return subject.launcher_in(ROOT / "generated", plan)
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        made = edited(one_schedule(plan), edit)
        alone.write(folder, {**alone.shared_texts(), **made})
        return subject.launcher_in(folder, plan)

    def inputs(self, name: str, kind: str, k: int, seed: int) -> Inputs:
        """A [SIDE, K] and B [K, SIDE] of one kind of data."""
        random = torch.Generator(self.device)
        random.manual_seed(seed)
        source = Source(self.plans[name], k, True, random)
        dtype = torch_dtype(self.plans[name].dtype)
        shapes = ((SIDE, k), (k, SIDE))
        a, b = (KINDS[kind](source, shape).to(dtype) for shape in shapes)
        return Inputs(a, (b,), {})

    def verdict(self, name: str, inputs: Inputs, got: Tensor) -> Verdict:
        """What the oracle says of a result."""
        return judged(self.plans[name], inputs, [got], BLOCK)


def one_schedule(plan: Plan) -> Plan:
    """The kernel with nothing but `tiled`, so that an edit of that is what runs."""
    tables = []
    for table in plan.tables:
        used = [row.tile for row in table.rows(plan.product)]
        tiles = [
            replace(tile, schedule=FALLBACK, split_k=1)
            for tile in used
            if tile.schedule in (FALLBACK, "split_k")
        ]
        tiles = list(dict.fromkeys(tiles))
        only = replace(table, measured=(), unaligned=(), costs=(), tiles=tuple(tiles))
        tables.append(only)
    return replace(plan, tables=tuple(tables))


def edited(plan: Plan, edit: str) -> dict[str, str]:
    """The files of a kernel with a fault that is edited into its `tiled`."""
    texts, name = render.files(plan, "spec.yaml"), file_of(plan, FALLBACK)
    return {**texts, name: _edited(plan, texts[name], edit)}


def _edited(plan: Plan, source: str, edit: str) -> str:
    if edit == "tf32":
        assert source.count('input_precision="ieee"') == 1
        return source.replace('input_precision="ieee"', 'input_precision="tf32"')
    found = mutants(plan, FALLBACK, source)
    return next(one.source for one in found if one.name.startswith(edit))


def _cut(matrix: Tensor) -> Tensor:
    """fp32 cut to tf32's 10 bits of mantissa."""
    return (matrix.contiguous().view(torch.int32) & -(2**13)).view(torch.float32)


def _in_torch(plan: Plan, a: Tensor, b: Tensor, edit: str) -> Tensor:
    """The product as a kernel would compute it, by torch on the CPU."""
    wide = torch.float64 if plan.accumulator == "fp64" else torch.float32
    a, b = a.to(wide), b.to(wide)
    if edit == "last of K masked":
        a, b = a[:, :-1], b[:-1]
    if edit == "accumulator narrowed":
        acc = torch.zeros(a.shape[0], b.shape[1])
        for k in range(0, a.shape[1], LOST):
            acc = (acc + a[:, k : k + LOST] @ b[k : k + LOST]).half().float()
    elif plan.precision == "tf32" or edit == "tf32":
        acc = _cut(a) @ _cut(b)
    elif plan.precision == "tf32x3":
        big = (_cut(a), _cut(b))
        small = (_cut(a - big[0]), _cut(b - big[1]))
        acc = big[0] @ small[1] + small[0] @ big[1] + big[0] @ big[1]
    else:
        acc = a @ b
    return acc.to(torch_dtype(plan.out))


def with_loss(
    plan: Plan, inputs: Inputs, got: Tensor, columns: int, seed: int
) -> Tensor:
    """A healthy result with `columns` of K left out in one element."""
    random = torch.Generator().manual_seed(seed)
    row, column = (int(torch.randint(0, SIDE, (), generator=random)) for _ in "mn")
    terms = inputs.lhs[row].double() * inputs.rhs[0][:, column].double()
    sums = torch.stack([part.sum() for part in terms.split(columns)])
    places = sums.nonzero().flatten()
    place = places[int(torch.randint(0, len(places), (), generator=random))]
    dtype = torch_dtype(plan.out)
    faulty = got.clone()
    faulty[row, column] = rounded(terms.sum() - sums[place], plan, dtype).to(dtype)
    return faulty


def healthy_rows(bench: Bench, seeds: int) -> Iterator[dict[str, str]]:
    """A row a path: the worst error over every kind of data and K."""
    for path, name in PATHS.items():
        kernel, worst, where, refused, calls = bench.kernel(name), 0.0, "", 0, 0
        for kind in HEALTHY_KINDS:
            for k in HEALTHY_K:
                for seed in range(seeds):
                    inputs = bench.inputs(name, kind, k, seed)
                    got = kernel(inputs.lhs, *inputs.rhs)
                    verdict = bench.verdict(name, inputs, got)
                    calls, refused = calls + 1, refused + bool(verdict.fault)
                    if verdict.worst > worst:
                        worst, where = verdict.worst, f"{kind}, K={k}"
        yield {
            "path": path,
            "results": str(calls),
            "refused": str(refused),
            "worst error / bound": f"{worst:.3f}",
            "at": where,
            "verdict": "wrong" if refused else "fine",
        }


def faults(bench: Bench) -> Iterator[tuple[str, str, Callable[..., Tensor]]]:
    """Fault, kernel, and what makes its result from inputs and a seed."""
    for name in ("gemm_nn_bf16", "gemm_nn_fp16"):
        for fault, edit in (
            ("fp16 accumulator", "accumulator narrowed"),
            ("last K column skipped everywhere", "last of K masked"),
        ):
            kernel = bench.kernel(name, edit)
            yield fault, name, lambda i, seed, run=kernel: run(i.lhs, *i.rhs)
        healthy = bench.kernel(name)
        for fault, columns in (
            (f"one {LOST}-wide K block lost in one element", LOST),
            ("one product lost in one element", 1),
        ):
            yield (
                fault,
                name,
                lambda i, seed, run=healthy, name=name, columns=columns: with_loss(
                    bench.plans[name], i, run(i.lhs, *i.rhs), columns, seed
                ),
            )
    kernel = bench.kernel("gemm_nn_fp32", "tf32")
    yield (
        "tf32 in place of ieee",
        "gemm_nn_fp32",
        lambda i, seed, run=kernel: run(i.lhs, *i.rhs),
    )


def fault_rows(bench: Bench, trials: int) -> Iterator[dict[str, str]]:
    """A row a fault: in how many trials each tier flags it, at K = 8192."""
    for fault, name, faulty in faults(bench):
        flagged = {"normal": 0, "narrow": 0, "wide": 0, "any": 0}
        for seed in range(trials):
            seen = set()
            for kind in ("normal", *INTEGERS):
                inputs = bench.inputs(name, kind, K, 1000 + seed)
                got = faulty(inputs, seed)
                if bench.verdict(name, inputs, got).fault:
                    seen.add(kind)
                    flagged[kind] += 1
            flagged["any"] += bool(seen)
        yield {
            "fault": fault,
            "kernel": name,
            "bound tier (normal)": f"{flagged['normal']}/{trials}",
            "integers, narrow": f"{flagged['narrow']}/{trials}",
            "integers, wide": f"{flagged['wide']}/{trials}",
            "any tier": f"{flagged['any']}/{trials}",
            "verdict": "fine" if flagged["any"] == trials else "missed",
        }


def markdown(rows: list[dict[str, str]]) -> str:
    """Rows under their keys."""
    keys = list(rows[0])
    lines = [keys, ["---"] * len(keys), *(list(row.values()) for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cpu", action="store_true", help="torch, not the kernels")
    parser.add_argument("--seeds", type=int, default=2, help="healthy, per K and kind")
    parser.add_argument("--trials", type=int, default=10, help="per fault")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    options = parser.parse_args()
    if not options.cpu and not torch.cuda.is_available():
        print("calibrate_error: needs a GPU, or --cpu", file=sys.stderr)
        return 3
    started = time.monotonic()
    device = torch.device("cpu" if options.cpu else "cuda")
    plans = {plan.name: plan for plan in load(ROOT / "spec.yaml")}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(device, plans, Path(folder))
        healthy = list(healthy_rows(bench, options.seeds))
        planted = list(fault_rows(bench, options.trials))
    where = "torch on the CPU" if options.cpu else torch.cuda.get_device_name()
    seconds = time.monotonic() - started
    text = (
        "Made by `python benchmarks/verification/calibrate_error.py"
        + " --cpu" * options.cpu
        + f"`: {where}, torch {torch.__version__}, {seconds:.0f} s.\n\n"
        f"Healthy results, {SIDE} x {SIDE}, K of {', '.join(map(str, HEALTHY_K))}:\n\n"
        + markdown(healthy)
        + f"\nPlanted faults, {SIDE} x {SIDE}, K = {K}: trials in which each is "
        "flagged. The faults of one\nelement are put into a healthy result, the others "
        "into the kernel.\n\n" + markdown(planted)
    )
    print(text)
    if options.markdown:
        options.markdown.write_text(text, encoding="utf-8")
    return int(any(row["verdict"] != "fine" for row in [*healthy, *planted]))


if __name__ == "__main__":
    sys.exit(main())
