"""The hash that a kernel's headers have follows what users say, and that alone."""

from dataclasses import dataclass, fields, replace

from gemmgen.render.origin import fingerprint
from gemmgen.select.plan import Plan, plans
from gemmgen.select.table import Row
from gemmgen.select.tuned.layers import Pin
from gemmgen.spec.parse import parse

GEMM = "{name: k, op: gemm, layout: NN, dtype: fp16"


def planned(entry: str, targets: str = "[sm_80, sm_90]") -> Plan:
    text = f"gemmgen: 1\ntargets: {targets}\nkernels:\n  - {entry}}}\n"
    (one,) = plans(parse(text.encode(), "spec.yaml"))
    return one


ONE = planned(GEMM)


def test_it_is_what_it_was() -> None:
    """Whoever changes it rewrites all files of everybody."""
    assert fingerprint(ONE) == "bb9b3392ccdd5843"


def test_it_follows_the_entry() -> None:
    assert fingerprint(planned(f"{GEMM}, epilogue: ' acc'")) == fingerprint(ONE)
    others = [
        planned(f"{GEMM}, epilogue: acc * 2"),
        planned(f"{GEMM}, tiles: {{m: 64, n: 64, k: 64}}"),
        planned(f"{GEMM}, schedule: tiled"),
        planned(GEMM.replace("NN", "NT")),
        planned(GEMM.replace("fp16", "bf16")),
        planned(GEMM.replace("name: k", "name: other")),
        planned(GEMM, "[sm_90]"),
    ]
    assert len({fingerprint(one) for one in (ONE, *others)}) == len(others) + 1


def test_it_follows_tuning_files() -> None:
    first, *rest = ONE.tables
    row = Row(80, 64, None, first.tiles[0])
    rates = replace(first.rates, latency=2 * first.rates.latency)

    def pinned(least: int) -> Row:
        pin = Pin(least, 64, first.tiles[0], 64, 1e-5, 2e-5)
        return Row(80, 64, 512, pin.tile, 512, pin=pin)

    tuned = [
        replace(ONE, chosen_by="Timed on a GPU"),
        *(
            replace(ONE, tables=(table, *rest))
            for table in (
                replace(first, measured=(row,)),
                replace(first, measured=(replace(row, full=True),)),
                replace(first, measured=(replace(row, m=128),)),
                replace(first, rates=rates),
                replace(first, layers=(pinned(1),)),
                replace(first, layers=(pinned(2),)),
            )
        ),
    ]
    assert len({fingerprint(one) for one in (ONE, *tuned)}) == len(tuned) + 1


def test_it_has_no_word_of_how_a_plan_is_held() -> None:
    @dataclass(frozen=True)
    class Wider(Plan):
        another: int = 1

    held = {one.name: getattr(ONE, one.name) for one in fields(ONE)}
    assert fingerprint(Wider(**held)) == fingerprint(ONE)
