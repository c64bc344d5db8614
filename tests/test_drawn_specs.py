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
