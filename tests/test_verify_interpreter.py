"""The mended interpreter computes as a GPU does, and its memory check is exact."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from triton.runtime.interpreter import TensorHandle

from gemmgen.verification.interpret import hardware, interpreter, orders
from gemmgen.verification.interpret.memory import (
    Memory,
    OutOfBounds,
    Unclean,
    addressed,
)
from gemmgen.verification.interpret.workspace import Workspace

KERNEL = """
import sys
sys.path.insert(0, sys.argv[1])
from gemmgen.verification.interpret import interpreter
interpreter.mend()
import numpy, torch, triton, triton.language as tl

@triton.autotune([triton.Config({"SIZE": 16}, num_warps=4)], key=[])
@triton.jit
def kernel(a, b, c, count, factor: tl.float64, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    at = i[:, None] * SIZE + i[None, :]
    acc = tl.zeros((SIZE, SIZE), dtype=tl.float32)
    for _ in range(0, count):  # takes __index__ of a tensor, which NumPy 2.4 broke
        acc = tl.dot(tl.load(a + at), tl.load(b + at), acc)
    kept = tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)
    dropped = tl.maximum(acc, 0.0)
    tl.store(c + at, kept.to(tl.bfloat16))
    tl.store(c + 256 + at, dropped.to(tl.bfloat16))
    tl.store(c + 512 + at, (factor + tl.zeros((16, 16), tl.float64) - 0.1) * 2**60)

torch.manual_seed(0)
a, b = torch.randn(2, 16, 16).bfloat16()
a[0, 0] = torch.nan
c = torch.zeros(3, 16, 16, dtype=torch.bfloat16)
kernel[lambda meta: (1,)](a, b, c, 3, 0.1)
product = (3 * (a.double() @ b.double())).float()
assert torch.equal(c[0][1:], product.relu().bfloat16()[1:])
assert c[0][0].isnan().all() and (c[1][0] == 0).all()
assert (c[2] == 0).all(), "a float64 argument is not rounded to fp32"
print("fine", numpy.__version__)
"""

OPERANDS = """
import sys
sys.path.insert(0, sys.argv[1])
from itertools import product
import numpy as np, triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as triton_interpreter
from triton.runtime.interpreter import TensorHandle

PROMOTES = "binary_op_type_checking_impl"
NAMES = PROMOTES, "broadcast_impl_value", "cast"
from gemmgen.verification.interpret.known_operators import OPERATORS
own = {name: getattr(TritonSemantic, name) for name in (*NAMES, *OPERATORS)}
Plain = type("Plain", (TritonSemantic,), own)

from gemmgen.verification.interpret import interpreter
interpreter.mend()
triton_interpreter._patch_lang(lambda: tl)

def tensor(scalar, *shape):
    kind = triton_interpreter._get_np_dtype(scalar)
    data = np.arange(np.prod(shape or (1,))).reshape(shape or (1,)).astype(kind)
    of = tl.block_type(scalar, list(shape)) if shape else scalar
    return tl.tensor(TensorHandle(data, scalar), of)

def told(semantic, name, *given):
    try:
        found = getattr(semantic, name)(*given)
    except Exception as error:
        return type(error), str(error)
    return [(one.type.name, one.handle.dtype.name, str(one.handle.data.dtype),
             repr(one.handle.data.tolist()))
            for one in (found if type(found) is tuple else (found,))]

kinds = tl.int1, tl.int8, tl.uint32, tl.int64, tl.bfloat16, tl.float32
operands = [tensor(one, *shape) for one in kinds for shape in ((), (4, 1), (8,))]
pointer = tl.pointer_type(tl.float32)
operands += [tensor(pointer), tensor(pointer, 4, 1), tensor(tl.int32, 1, 8)]
operands += [0, -1, 100, 300, 2**31, 2**63, True, 0.5, -0.0, 1e300]
operands += [float("nan"), tl.constexpr(1)]
flags = (), (True, True), (False, False, True, True)
tried = [(PROMOTES, more) for more in flags]
more = {"add": (False,), "sub": (False,), "mul": (False,)}
more |= dict.fromkeys(("minimum", "maximum"), (tl.PropagateNan.NONE,))
tried += [(name, more.get(name, ())) for name in OPERATORS]
builder = triton_interpreter.interpreter_builder
count = 0
for _ in range(2):  # first worked out, then remembered
    for name, more in tried:
        some = operands if name == PROMOTES else operands[::2]
        for given in product(some, some):
            theirs = told(Plain(builder), name, *given, *more)
            ours = told(TritonSemantic(builder), name, *given, *more)
            assert theirs == ours, (name, given, theirs, ours)
            count += type(theirs) is list
assert count > 9000, count
print("fine", count)
"""


def test_programs_that_meet_run_in_other_orders() -> None:
    """Tile after tile, then the last part of each tile first, then as drawn."""
    positions = list(np.ndindex(2, 3, 1))
    orders.begin(7)
    found = [orders.next_order(positions) for _ in range(5)]
    assert found[0] == positions
    tiles = [(tile, part) for tile, part, _ in found[1]]
    assert tiles == [(1, 2), (0, 2), (1, 1), (0, 1), (1, 0), (0, 0)]
    assert all(sorted(one) == positions for one in found)
    assert len({tuple(one) for one in found}) == 5
    orders.begin(7)
    assert [orders.next_order(positions) for _ in range(5)] == found


class Played:
    """Two programs that each keep a part, in the order that a test plays."""

    def __init__(self) -> None:
        self.parts, self.counts = torch.zeros(16), torch.zeros(1, dtype=torch.int32)
        self.now = 0
        self.workspace = Workspace(self.parts, self.counts, lambda: self.now)

    def places(self, part: int) -> np.ndarray:
        """The addresses of a part."""
        at: np.ndarray = 4 * np.arange(4 * part, 4 * part + 4)
        return self.parts.data_ptr() + at

    def keeps(self, part: int) -> None:
        """The program of this number stores its part."""
        self.now = part
        self.workspace.stores(self.places(part))

    def counts_it(
        self, part: int, order: str = "ACQUIRE_RELEASE", scope: str = "GPU"
    ) -> None:
        """It passes a barrier, and counts."""
        self.now = part
        self.workspace.waits()
        self.workspace.counts_with(order, scope)


def test_parts_of_k_are_read_once_all_are_counted() -> None:
    played = Played()
    assert played.parts.isnan().all()
    for part in (1, 0):
        played.keeps(part)
        played.counts_it(part)
    for part in (0, 1):
        played.workspace.loads(played.places(part))
    played.workspace.finish()
    other = torch.zeros(4)
    played.workspace.loads(other.data_ptr() + 4 * np.arange(4))


def test_lanes_that_are_off_may_hold_the_addresses_of_parts() -> None:
    played = Played()
    played.keeps(0)
    pointers = played.places(0).astype(np.uint64)
    off, on = np.zeros(4, bool), np.array([True, False, False, True])
    played.workspace.stores(addressed(pointers, off))
    assert addressed(pointers, on).tolist() == pointers[on].tolist()
    with pytest.raises(Unclean, match="kept where another was"):
        played.workspace.stores(addressed(pointers, on))


def test_a_part_of_k_that_may_not_be_there_is_not_read() -> None:
    played = Played()
    played.keeps(1)
    played.workspace.counts_with("ACQUIRE_RELEASE", "GPU")  # before a barrier
    played.keeps(0)
    played.counts_it(0)
    played.workspace.loads(played.places(0))
    with pytest.raises(Unclean, match="may not be there yet"):
        played.workspace.loads(played.places(1))
    for weaker in (("RELAXED", "GPU"), ("RELEASE", "GPU"), ("ACQUIRE_RELEASE", "CTA")):
        weak = Played()
        weak.keeps(1)
        weak.counts_it(1, *weaker)
        weak.keeps(0)
        weak.counts_it(0)
        with pytest.raises(Unclean, match="may not be there yet"):
            weak.workspace.loads(weak.places(1))
    ahead = Played()
    ahead.keeps(1)
    ahead.counts_it(1)
    ahead.keeps(0)  # and does not count
    with pytest.raises(Unclean, match="may not be there yet"):
        ahead.workspace.loads(ahead.places(1))


def test_who_has_counted_a_part_of_one_tile_counts_that_of_the_next_too() -> None:
    played = Played()
    for part in (1, 3, 0):  # of two tiles, all but the second part of program 0
        played.keeps(part)
        played.counts_it(part)
    played.workspace.loads(played.places(1))
    played.workspace.stores(played.places(2))
    with pytest.raises(Unclean, match="may not be there yet"):
        played.workspace.loads(played.places(3))
    played.counts_it(0)
    played.workspace.loads(played.places(3))


def test_parts_of_k_have_places_of_their_own_and_counts_end_at_zero() -> None:
    played = Played()
    played.keeps(1)
    played.now = 0
    with pytest.raises(Unclean, match="where another was"):
        played.workspace.stores(played.places(1))
    played.counts[0] = 1
    with pytest.raises(Unclean, match="not zero after"):
        played.workspace.finish()


def described(matrix: torch.Tensor, columns: int = 16) -> None:
    hardware.check_described(matrix, (16, columns))


def test_what_cuda_describes_is_accepted() -> None:
    described(torch.zeros(3, 32))
    described(torch.zeros(3, 40)[:, :33])
    described(torch.zeros(64)[4:].as_strided((1, 8), (4, 1)))


@pytest.mark.parametrize(
    ("matrix", "says"),
    [
        (torch.zeros(3, 32)[:, 1:], "its address is no multiple of 16"),
        (torch.zeros(3, 33), "the step between its rows is no multiple of 16 bytes"),
        (torch.zeros(3, 64)[:, ::2], "its columns are not contiguous"),
        (torch.zeros(128).as_strided((3, 32), (16, 1)), "its rows overlap"),
        (torch.zeros(32).expand(3, 32), "its rows overlap"),
        (torch.zeros(0, 4), "it is empty"),
    ],
)
def test_what_cuda_cannot_describe_is_refused(matrix: torch.Tensor, says: str) -> None:
    with pytest.raises(hardware.Refused, match=says):
        described(matrix)


def test_blocks_and_stored_rows_are_whole_lines() -> None:
    with pytest.raises(hardware.Refused, match="a row of its blocks"):
        described(torch.zeros(3, 32), columns=2)
    hardware.check_stored(64)
    with pytest.raises(hardware.Refused, match="beyond rows of 66 bytes"):
        hardware.check_stored(66)


def test_grids_have_as_many_programs_as_cuda_allows() -> None:
    hardware.check_grid((2**31 - 1, 65535, 65535))
    for grid in ((2**31, 1, 1), (1, 65536), (1, 1, 65536)):
        with pytest.raises(hardware.Refused, match="the grid has"):
            hardware.check_grid(grid)


def test_an_unrolled_loop_does_not_end_before_it_begins() -> None:
    """Which a GPU would not notice: it takes such a length for a huge one."""
    turns: list[int] = []
    ranged = interpreter._checked_range(range)
    for end in (5, 0, -1):
        turns.append(len(ranged(0, end, 2)))
    assert turns == [3, 0, 0]
    assert [*ranged(3, 3, loop_unroll_factor=4)] == []
    with pytest.raises(hardware.Refused, match="from 3 to 2, and on from there"):
        ranged(3, 2, loop_unroll_factor=4)


def converted(values: np.ndarray, source: tl.dtype, target: tl.dtype) -> torch.Tensor:
    data = interpreter._cast(None, TensorHandle(values, source), target).data
    if target == tl.bfloat16:
        return torch.from_numpy(data.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(data)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_casts_round_as_torch_does(seed: int) -> None:
    bits = np.random.default_rng(seed).integers(0, 2**32, 2000, dtype=np.uint32)
    ties = bits & 0xFFFF8000 | 0x8000
    for values in (bits.view(np.float32), ties.view(np.float32)):
        with np.errstate(all="ignore"):
            for target, dtype in ((tl.bfloat16, torch.bfloat16),
                                  (tl.float16, torch.float16)):  # fmt: skip
                got = converted(values, tl.float32, target)
                want = torch.from_numpy(values).to(dtype)
                torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def test_bf16_widens_to_its_value() -> None:
    values = torch.tensor([1.5, -0.0, torch.inf, 1e-40, -3e38]).bfloat16()
    data = values.view(torch.int16).numpy().view(np.uint16)
    assert torch.equal(converted(data, tl.bfloat16, tl.float32), values.float())


def ran(tmp_path: Path, text: str) -> str:
    script = tmp_path / "script.py"
    script.write_text(text)
    root = str(Path(__file__).resolve().parent.parent)
    done = subprocess.run(
        [sys.executable, str(script), root],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_kernel_runs_as_on_a_gpu(tmp_path: Path) -> None:
    assert ran(tmp_path, KERNEL).startswith("fine")


def test_what_is_remembered_of_operands_is_what_triton_makes_of_them(
    tmp_path: Path,
) -> None:
    """Of all kinds of types and numbers, those that Triton refuses too."""
    assert ran(tmp_path, OPERANDS).startswith("fine")


def check(tensor: torch.Tensor, elements: list[int], mask: bool = True) -> None:
    width = tensor.element_size()
    addresses = tensor.data_ptr() + np.array(elements, dtype=np.int64) * width
    memory = Memory([tensor])
    memory.check("load", addresses.astype(np.uint64), np.array([mask]), width)


def test_every_element_of_a_view_may_be_touched_and_nothing_else() -> None:
    view = torch.zeros(100)[10:].as_strided((3, 2), (20, 3))
    check(view, [0, 3, 20, 23, 40, 43])
    for outside in (-1, 1, 4, 43 + 1, 60, 2**31):
        with pytest.raises(OutOfBounds, match="load outside every argument"):
            check(view, [0, outside])
    check(view, [-1, 60], mask=False)


def test_between_two_elements_is_outside() -> None:
    tensor = torch.zeros(8)
    memory = Memory([tensor])
    odd = np.array([tensor.data_ptr() + 2], dtype=np.uint64)
    with pytest.raises(OutOfBounds):
        memory.check("store", odd, np.array([True]), 4)
    with pytest.raises(OutOfBounds, match="a width that no argument has"):
        memory.check("store", odd, np.array([True]), 8)


def test_views_with_far_elements_are_checked_too() -> None:
    far = torch.empty(2**27, dtype=torch.int8).as_strided((3, 2), (2**25, 7))
    check(far, [0, 7, 2**25, 2**26 + 7])
    with pytest.raises(OutOfBounds):
        check(far, [2**25 + 1])


def test_nothing_may_be_touched_of_an_empty_tensor() -> None:
    with pytest.raises(OutOfBounds):
        check(torch.zeros(0, 5), [0])
    check(torch.zeros(3).expand(4, 3), [0, 1, 2])
