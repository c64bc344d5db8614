"""Faults that only launchers, shared files and large sizes have, planted and found.

Each is one that a verification of a few tiles, of `out` that is given and of tiles that
are forced does not see. Warp-specialized kernels and repeated launches have their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from gemmgen.select.plan import Plan, plans
from gemmgen.spec.parse import parse
from gemmgen.verification.basics.outcome import Outcome
from gemmgen.verification.run import pool, process
from tests import folders
from tests.once import asked, once
from tests.slow import all_but

SPEC = """
gemmgen: 1
targets: [sm_80, sm_90]
kernels:
  - name: layer
    op: linear
    dtype: bf16
    schedule: [tiled, tma, persistent, split_k, warp_specialized, gemv]
    epilogue: alpha[] * silu(acc + bias[n]) + residual[m, n]
"""
(PLAN,) = plans(parse(SPEC.encode(), "spec.yaml"))
assert isinstance(PLAN, Plan)


@dataclass(frozen=True)
class Fault:
    """What of the folder's text is replaced wherever it stands, and what is said.

    Only tiles of the schedules in its file are tried.
    """

    before: str
    after: str
    says: str
    file: str = "tiled"


MADE = "torch.empty(shape, dtype=dtype, device=apart_from[0].device)"
M_SPAN, N_SPAN = "BLOCK_M, M, INDEX)", "BLOCK_N, N, INDEX)"
LOOP = "for k in range(0, k_end - k_begin, BLOCK_K):"
SPLITS = "tl.range(SPLIT_K, "
SUM = "partials_ptr + i * SIZE"
BLOCKS = "self.arguments[schedule].via_tma"

FAULTS: dict[str, Fault] = {
    "results made in fp64": Fault(
        "torch.empty(shape, dtype=dtype", "torch.empty(shape, dtype=torch.float64",
        "y is made as torch.float64",
    ),
    "results made column by column": Fault(
        MADE,
        MADE.replace("shape", "shape[::-1]") + ".permute(*range(len(shape))[::-1])",
        "y is made as torch.bfloat16",
    ),
    "one result for all calls": Fault(
        MADE, f"vars(Checks.output).setdefault(shape, {MADE})",
        "shares memory with an earlier one",
    ),
    "a size of 1 accepted": Fault(
        "isinstance(size, str) or size == have",
        "isinstance(size, str) or have in (1, size)",
        "w has size 1 along axis 1: ",
    ),
    "out may begin where an input does": Fault(
        "not all(apart(out, tensor) for tensor in apart_from)", "False",
        "out begins where x",
    ),
    "out may lie over an input": Fault(
        "distance >= extent(one) or distance <= -extent(other)", "distance",
        "out begins -16 bytes behind x",
    ),
    "out may be an operand transposed": Fault(
        "same(out, tensor) or apart(out, tensor)", "True", "residual: accepted",
    ),
    "rows of out may overlap": Fault(
        "not distinct(out)", "False", "out is broadcast",
    ),
    "gradients lost": Fault(
        "tensor.requires_grad and torch.is_grad_enabled()", "False",
        "requires a gradient: accepted",
    ),
    "negated views read as they are": Fault(
        "tensor.is_neg() or tensor.is_conj()", "False", "x is a view that negates",
    ),
    "columns beyond the second tile": Fault(
        N_SPAN, "BLOCK_N, min(N, 2 * BLOCK_N), INDEX)", "in tile (0, 2)",
    ),
    "rows beyond a group": Fault(
        M_SPAN, "BLOCK_M, min(M, 32), INDEX)", "in tile (2, 0)",
    ),
    "K beyond 4096": Fault(LOOP, LOOP.replace("k_end -", "min(k_end, 4096) -"), "K=4"),
    "K that is a multiple of 512": Fault(
        LOOP, LOOP.replace("k_begin,", "k_begin - (K % 512 == 0) * BLOCK_K,"), "K=512",
    ),
    "parts beyond the sixteenth": Fault(
        SPLITS, "tl.range(min(SPLIT_K, 16), ", "K=1024",
    ),
    "parts summed from the one that comes last": Fault(
        SUM, "partials_ptr + (i + tl.program_id(1)) % SPLIT_K * SIZE",
        "y differs from one run to the next", "tma",
    ),
    "descriptors of any width": Fault(
        "matrix.shape[1] * size % 16 == 0", "True", "writes beyond rows",
        "persistent",
    ),
    "descriptors of overlapping rows": Fault(
        "(rows >= matrix.shape[1] or matrix.shape[0] == 1)", "True", "its rows overlap",
        "tma",
    ),
    "descriptors that start anywhere": Fault(
        "matrix.data_ptr() % 16 == 0", "True", "16-byte aligned", "persistent",
    ),
    "w not asked whether it can be described": Fault(
        BLOCKS, f"{BLOCKS}[:1]", "16-byte aligned", "tma",
    ),
    "y not asked whether it can be described": Fault(
        BLOCKS, f"{BLOCKS}[:2]", "16-byte aligned", "persistent",
    ),
    "bias not asked for its offsets": Fault(
        "index_dtype(*tensors)", "index_dtype(*tensors[:2], *tensors[3:])",
        "beyond 2^31 along axis 0 of bias",
    ),
    "offsets of the longest axis": Fault(
        "last = sum(", "last = max(", "beyond 2^31 along axis 0 and 1 of x",
    ),
    "a number of one decimal": Fault(
        "return number", "return round(number, 1)", "alpha=0.2968017",
    ),
}  # fmt: skip


def planted(folder: Path, fault: Fault) -> process.Subject:
    """The kernel's folder with the fault wherever its text stands."""
    texts = folders.replaced(folders.rendered(PLAN), fault.before, fault.after)
    path = folders.written(folder, PLAN, texts)
    return process.Subject(PLAN, path, "spec.yaml", file=fault.file)


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    """What is said of each whose test runs."""
    return once(tmp_path_factory, "planted", partial(verified, asked(request)))


def verified(names: Sequence[str], root: Path) -> dict[str, Outcome]:
    """What is said of faults, by name."""
    subjects = [planted(root / name.replace(" ", "_"), FAULTS[name]) for name in names]
    found = pool.run_properties(subjects, "cpu", "quick", 7)
    return dict(zip(names, found, strict=True))


# Of rows, of K, of parts, of offsets and of descriptors others are found in less time.
SLOW = {
    "K that is a multiple of 512",
    "a number of one decimal",
    "one result for all calls",
    "w not asked whether it can be described",
    "y not asked whether it can be described",
    "K beyond 4096",
    "bias not asked for its offsets",
    "rows beyond a group",
    "parts beyond the sixteenth",
    "parts summed from the one that comes last",
    "offsets of the longest axis",
}


@pytest.mark.parametrize("name", all_but(set(FAULTS) - SLOW, FAULTS))
def test_a_planted_fault_is_found(name: str, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[name]
    assert not outcome.ok
    assert FAULTS[name].says in outcome.detail, outcome.detail
