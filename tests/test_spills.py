"""The grid of the script spills.py can be planned; its report tells what it found."""

import json
from pathlib import Path

import pytest

from gemmgen.tables.functions import OPS
from gemmgen.tables.layouts import LAYOUTS
from tests.scripts import script

spills = script("spills")
Found = spills.Found


def test_the_grid_has_every_dtype_layout_epilogue_and_function() -> None:
    names = [name for name, _ in spills.entries()]
    assert len(set(names)) == len(names)
    kinds, epilogues = len(spills.KINDS), len(spills.EPILOGUES)
    assert len(names) == kinds * len(LAYOUTS) * epilogues + len(OPS)
    for name in OPS:
        assert spills.planned(f"bf16_nt_{name}_only", ("sm_80",)).epilogue
    kind_of = {kind: spills.planned(f"{kind}_tn_two_results", ("sm_80",)).product.kind
               for kind in spills.KINDS}  # fmt: skip
    assert kind_of == {
        "bf16": "bf16", "fp16_fp32": "fp16", "tf32": "tf32", "tf32x3": "tf32x3",
        "ieee": "ieee", "fp64": "fp64",
    }  # fmt: skip


def test_one_kernel_from_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, text = tmp_path / "one.json", tmp_path / "spills.md"
    line = ["spills.py", str(file), "--jobs", "1", "--only", "fp64_nn_plain"]
    monkeypatch.setattr("sys.argv", [*line, "--targets", "sm_80"])
    assert spills.main() == 0
    _, found = spills.read(file)
    assert {one.tile.split()[0] for one in found} >= {"tiled"}
    assert all(one.registers and not one.failure for one in found)
    monkeypatch.setattr("sys.argv", ["spills.py", str(file), "--report", str(text)])
    assert spills.main() == 0
    assert "| tiled | sm_80 |" in text.read_text()
    assert json.loads(file.read_text())["triton"] in text.read_text()


def test_the_report_tells_what_spills_where() -> None:
    tiles = [
        Found("one", "sm_90", "tma 64x64x64 s5 w4", 8, 2, 0, 255),
        Found("one", "sm_90", "tma 128x64x64 s5 w4", 32, 2, 6, 255),
        Found("one", "sm_90", "tma 64x128x64 s5 w4", 0, 0, 0, 128),
        Found("two", "sm_80", "tiled 64x64x64 s5 w4", failure="PTXASError: no"),
        Found("two", "sm_80", "tiled 64x64x32 s5 w4", over_shared=16),
    ]
    text = spills.report([("3.9.0", tiles)])
    assert "| 3.9.0 | tma | sm_90 | 3 | 1 | 8 | 1 | 0 | 0 |" in text
    assert "| 3.9.0 | tiled | sm_80 | 2 | 0 | 0 | 0 | 1 | 1 |" in text
    listed = [line for line in text.splitlines() if line.startswith("- ")]
    assert listed == [
        f"- Triton 3.9.0: 2 of {len(list(spills.entries()))} kernels: one, two",
        "- 3.9.0, sm_90, one: `tma 128x64x64 s5 w4`, "
        "32 bytes, 6 instructions in the K loop",
        "- 3.9.0, sm_80, two: `tiled 64x64x64 s5 w4`, "
        "does not compile: PTXASError: no",
        "- 3.9.0, sm_80, two: `tiled 64x64x32 s5 w4`, "
        "16 bytes more than a block may have",
    ]
