"""The committed kernels come out of any machine: its hash seed, place and locale."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LOCK = "gemmgen.lock.json"
MACHINES = {
    "plain": {"PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "UTC"},
    "strange": {
        "PYTHONHASHSEED": "1",
        "LC_ALL": "tr_TR.UTF-8",
        "TZ": "Pacific/Kiritimati",
        "PYTHONUTF8": "0",
        "COLUMNS": "20",
        "SOURCE_DATE_EPOCH": "1",
    },
}


def files(folder: Path) -> dict[str, bytes]:
    """The bytes of the files in a folder and in those below it, by name."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def built(place: Path, machine: str) -> dict[str, bytes]:
    """What a copy of this tree at `place` builds there, standing elsewhere."""
    tree = place / f"a tree ({machine})"
    leave = shutil.ignore_patterns("__pycache__", "verification")
    for name in ("gemmgen", "templates", "tuning"):
        shutil.copytree(ROOT / name, tree / name, ignore=leave)
    shutil.copy(ROOT / "spec.yaml", tree)
    subprocess.run(
        [sys.executable, "-m", "gemmgen.cli.main", "build", tree / "spec.yaml"],
        cwd=tree if machine == "plain" else place,
        env={**os.environ, "PYTHONPATH": str(tree), **MACHINES[machine]},
        stdout=subprocess.DEVNULL,
        check=True,
        umask=0o077,
    )
    made = tree / "generated"
    modes = {(made / name).stat().st_mode & 0o777 for name in files(made)}
    assert modes == {0o644}
    return files(made)


@pytest.mark.slow
def test_two_machines_build_the_committed_bytes(tmp_path: Path) -> None:
    plain, strange = (built(tmp_path, machine) for machine in MACHINES)
    assert plain == strange
    committed = files(ROOT / "generated")
    # The lock names the generator's own text, which the last change may have changed.
    for one in (plain, committed):
        del one[LOCK]
    assert plain == committed
