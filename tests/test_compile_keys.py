"""`gemmgen list --compile-keys`: that it lists what Triton tells apart, and no more."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from gemmgen.cli.main import main
from gemmgen.hardware.targets import TARGETS
from gemmgen.render.compile_keys import CompileKey, by_tile, compile_keys, whole
from gemmgen.select.plan import Plan, load
from gemmgen.verification.contract import tile_choice
from gemmgen.verification.example import subject
from tests.own import OWN
from tests.slow import all_but

ROOT = Path(__file__).resolve().parent.parent
NAMES = (
    "study_linear",
    "gemm_nn_fp16",
    "gemm_nt_fp32",
    "gemm_tn_bf16",
    "gemm_nn_fp64",
    "gemm_nt_tf32",
    "linear_bias_silu_residual",
    "linear_gelu_aux",
)
FAST = {"study_linear", "gemm_nt_tf32"}
SIZES = (1, 2, 3, 4, 7, 8, 16, 24, 40, 64, 100, 144, 1000, 4096)
DRAWS = 400
ARGUMENTS = ("M", "N", "K", "SPLIT_K", "ALIGN", "INDEX")


def launched(plan: Plan, module: Any, sizes: tuple[int, int, int]) -> Any:
    call = tile_choice._Call(TARGETS["sm_90"], 132, sizes, "whole", True)
    with tile_choice.gpus(module) as tell:
        tell(call)
        return tile_choice._chosen(plan, module, call)


def key_of(plan: Plan, module: Any, launch: Any) -> CompileKey:
    """The key that a launch has, by what Triton's own rules make of its arguments."""
    (row,) = (
        row
        for row, one in zip(plan.rows, module.TILES, strict=True)
        if launch.tile._replace(starts=one.starts) in one.members()
    )
    sides = launch.tile.m, launch.tile.n
    (tile,) = (one for one in row.tiles(plan.product) if (one.m, one.n) == sides)
    parameters = launch.kernel.params[-len(launch.scalars) :]
    kinds = {}
    for parameter, value in zip(parameters, launch.scalars, strict=True):
        name = parameter.name
        if name in ("ALIGN", "INDEX"):
            kinds[name] = str(value)
        elif name in ARGUMENTS and not parameter.do_not_specialize:
            kinds[name] = "1" if value == 1 else "any" if value % 16 else "16"
    told = tuple((name, kinds[name]) for name in ARGUMENTS if name in kinds)
    return CompileKey(row.target.name, whole(tile), told)


@pytest.mark.parametrize("name", all_but(FAST, NAMES))
def test_calls_need_what_is_listed_and_each_key_is_one_text(name: str) -> None:
    plan = OWN[name]
    module = subject.load(ROOT / f"generated/{name}/__init__.py")
    kind = subject.runtime(module, "packed").compile_key
    listed, draw = set(compile_keys(plan)), random.Random(name)
    texts: dict[Any, CompileKey] = {}
    compiled: dict[CompileKey, Any] = {}
    for _ in range(DRAWS):
        m, n, k = (draw.choice(SIZES) for _ in "mnk")
        launch = launched(plan, module, (m, n, k))
        key, text = key_of(plan, module, launch), kind(launch)
        assert key in listed, f"{m}x{n}x{k}"
        # One text a key, and another for another.
        assert compiled.setdefault(key, text) == text
        assert texts.setdefault(text, key) == key
    assert len(compiled) > 20


@pytest.mark.parametrize(
    "name, told",
    all_but(
        {("linear_bf16", False), ("gemm_nt_tf32", True)},
        [
            ("linear_bf16", False),
            ("linear_bias_silu_residual", False),
            ("gemm_tn_bf16", False),
            ("linear_scales", True),  # row_scale [m]
            ("gemm_nt_tf32", True),  # its results are stored by pointers
        ],
    ),
)
def test_specialized_kernels_have_rows_told_apart_where_pointers_run_along_them(
    name: str, told: bool
) -> None:
    plan = OWN[name]
    module = subject.load(ROOT / f"generated/{name}/__init__.py")
    # Along M, as A lies in TN, rows begin elsewhere: few numbers share a tile there.
    pairs = (
        [launched(plan, module, (rows, 4096, 4096)) for rows in (least, least + 8)]
        for least in range(1024, 8192, 16)
    )
    whole, other = next(
        (one, two)
        for one, two in pairs
        if one.tile._replace(starts=two.tile.starts) == two.tile
        and one.tile.schedule == "warp_specialized"
    )
    keys = [
        dict(key.kinds)
        for key in compile_keys(plan) if key.tile.schedule == "warp_specialized"
    ]  # fmt: skip
    assert keys and {"M" in kinds for kinds in keys} == {told}
    kind = subject.runtime(module, "packed").compile_key
    assert (kind(whole) != kind(other)) is told
    rows = subject.runtime(module, "families").row_specialization
    assert (rows(whole) != rows(other)) is told


def test_offsets_of_64_bits_have_keys_of_their_own() -> None:
    plan = OWN["gemm_nn_fp64"]
    module = subject.load(ROOT / "generated/gemm_nn_fp64/__init__.py")
    few, many = (launched(plan, module, (rows, 64, 2**20)) for rows in (64, 4096))
    keys = [key_of(plan, module, one) for one in (few, many)]
    assert [dict(key.kinds)["INDEX"] for key in keys] == ["int32", "int64"]
    assert set(keys) <= set(compile_keys(plan))


@pytest.mark.parametrize("name, counts", [("linear_bf16", 18), ("gemm_tn_bf16", 54)])
def test_docs_say_how_many_keys_a_tile_has(name: str, counts: int) -> None:
    of_tile: dict[str, list[dict[str, str]]] = {}
    for key in compile_keys(OWN[name]):
        kinds = dict(key.kinds)
        if kinds.get("SPLIT_K", "1") == "1" and kinds.get("INDEX") == "int32":
            of_tile.setdefault(f"{key.target} {key.tile}", []).append(kinds)
    assert max(map(len, of_tile.values())) == counts
    for each in of_tile.values():
        # Of one row, or of up to eight columns, no size is a multiple of 16.
        most = {
            name: next(kind for kind in ("16", "8", "any", "1") if kind in found)
            for name in ("M", "N", "K", "ALIGN")
            if (found := {one[name] for one in each if name in one})
        }
        whole = [all(one[name] == most[name] for name in most) for one in each]
        assert sum(whole) == 1


def test_the_command_prints_a_line_a_tile_and_json_has_every_key(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text("gemmgen: 1\nkernels:\n- {name: one, op: linear, dtype: bf16}\n")
    (plan,) = load(spec)
    keys = compile_keys(plan)
    assert main(["list", "--compile-keys", str(spec)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(by_tile("one", keys)) + 2
    assert lines[-1].startswith(f"{len(keys)} keys, ")
    assert main(["list", "--compile-keys", "--format", "json", str(spec)]) == 0
    told = json.loads(capsys.readouterr().out)["compile_keys"]["one"]
    assert told == [key.as_json() for key in keys]
