"""Whatever a spec says: a located error, or a kernel that builds, imports and runs."""

import ast
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

from hypothesis import HealthCheck, given, settings

from gemmgen.base.errors import SpecErrors
from gemmgen.output import builder
from tests.drawn_specs import specs
from tests.slow import all_but

ROOT = Path(__file__).resolve().parent.parent
LOCATED = re.compile(r"[^\n]*spec\.yaml:\d+:\d+: [^\n]+")
FEW, EXAMPLES = 30, int(os.environ.get("DRAWN_SPECS", "60"))


@pytest.fixture(scope="module")
def interpreted() -> Iterator[subprocess.Popen[str]]:
    """The process that runs what was built."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.interpreted"],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process
        assert process.stdin
        process.stdin.close()


folders = itertools.count()


EXACT = """\
gemmgen: 1
kernels:
  - name: one
    op: gemm
    layout: NN
    dtype: fp64
    tiles: {m: 16, n: 16, k: 16}
    epilogue: |
      third = 1 / 3
      chosen = where(acc > 0, 0.1, 0.3) + where(alpha[] > 9, 1, 2) / 3
      y = minimum(acc, 0.7) * third + clamp(0.1, acc, 0.9) - exp(0.1 * alpha[]) * chosen
"""


def test_numbers_of_fp64_kernels_are_not_rounded_to_fp32(
    interpreted: subprocess.Popen[str], tmp_path: Path
) -> None:
    """Triton takes for fp32 what no tensor makes fp64."""
    (tmp_path / "spec.yaml").write_text(EXACT)
    builder.build([tmp_path / "spec.yaml"], tmp_path / "exact")
    assert interpreted.stdin and interpreted.stdout
    print(tmp_path / "exact", file=interpreted.stdin, flush=True)
    assert ast.literal_eval(interpreted.stdout.readline()) == ""


@pytest.mark.parametrize("examples", all_but({FEW}, [FEW, EXAMPLES]))
def test_a_spec_is_a_located_error_or_a_kernel_that_runs(
    examples: int,
    interpreted: subprocess.Popen[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    outcomes: list[bool] = []

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize="DRAWN_SPECS" not in os.environ,
        suppress_health_check=list(HealthCheck),
    )
    @given(specs())
    def holds(text: str) -> None:
        home = tmp_path_factory.mktemp("drawn")
        folder = home / f"drawn_{next(folders)}"
        (home / "spec.yaml").write_text(text)
        try:
            builder.build([home / "spec.yaml"], folder)
        except SpecErrors as errors:
            assert errors.errors
            assert all(LOCATED.fullmatch(str(one)) for one in errors.errors)
            assert not folder.exists()
            outcomes.append(False)
            return
        assert interpreted.stdin and interpreted.stdout
        print(folder, file=interpreted.stdin, flush=True)
        said = ast.literal_eval(interpreted.stdout.readline())
        assert said == "", f"{text}\n{said}"
        outcomes.append(True)

    holds()
    # About a third are; how many exactly depends on what else was imported, whose
    # constants Hypothesis draws.
    assert sum(outcomes) >= examples // 12
