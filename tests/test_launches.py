"""Launchers on the stand-in for a GPU's driver: healthy ones pass, planted faults die.

Each case runs in a process of its own, for the stand-in stays in one that has it.
"""

from pathlib import Path

from gemmgen.folder import SHARED
from gemmgen.plan import Plan, load
from gemmgen.verification.pool import run_launches
from gemmgen.verification.process import Subject

ROOT = Path(__file__).resolve().parent.parent
NAMES = (
    "linear_bias_silu_residual",  # descriptors of every role, parts of K, warp roles
    "gemm_nn_bf16_alpha_beta",  # numbers
    "linear_gelu_aux",  # two results
    "linear_clamp",  # tf32
    "study_matmul",  # configurations that race
)
PLANS: dict[str, Plan] = {
    one.name: one for one in load(ROOT / "spec.yaml") if one.name in NAMES
}


def written(
    folder: Path, kernel: str, change: tuple[str, str] | None = None
) -> Subject:
    """The folder of one kernel, with a text of all its modules replaced, if any."""
    folder.mkdir()
    texts = {
        name: (ROOT / "generated" / name).read_text(encoding="utf-8")
        for name in (*SHARED, f"{kernel}.py")
    }
    for name, text in texts.items():
        (folder / name).write_text(
            text.replace(*change) if change else text, encoding="utf-8"
        )
    assert change is None or any(change[0] in text for text in texts.values())
    return Subject(PLANS[kernel], folder / f"{kernel}.py")


def test_healthy_launchers_pass(tmp_path: Path) -> None:
    subjects = [written(tmp_path / name, name) for name in NAMES]
    outcomes = run_launches(subjects, "quick", 0)
    assert [(one.status, one.detail) for one in outcomes] == [("passed", "")] * len(
        NAMES
    )
    assert all(one.check == "launches" and one.examples > 500 for one in outcomes)
