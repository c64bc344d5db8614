"""A number of an epilogue is a kernel's parameter; some names of those are Triton's."""

import inspect
import re

import pytest

jit = pytest.importorskip("triton.runtime.jit")

from gemmgen.base.errors import Location, SpecErrors  # noqa: E402
from gemmgen.epilogue.parser import compile_epilogue  # noqa: E402
from gemmgen.gate.reserved import OF_TRITON  # noqa: E402

WORDS = sorted({*re.findall(r"\b[a-z]\w*", inspect.getsource(jit)), *OF_TRITON})


def is_allowed(name: str) -> bool:
    """Whether an epilogue may have a number of this name."""
    try:
        compile_epilogue(
            f"acc * {name}[]", ("acc",), "c", (), lambda at: Location("s", 1, at + 1)
        )
    except SpecErrors:
        return False
    return True


def bound(names: list[str]) -> object:
    """What Triton's own function of a kernel's parameters makes of a call."""
    space: dict[str, object] = {}
    exec(f"def kernel(x_ptr, {', '.join(names)}, M): pass", space)
    signature = inspect.signature(space["kernel"])  # type: ignore[arg-type]
    kinds = [
        jit.KernelParam(at, one, True, True)
        for at, one in enumerate(signature.parameters.values())
    ]
    binder = jit.create_function_from_signature(signature, kinds, None)
    values = [1.5] * (len(names) + 2)
    options = {"num_warps": 4, "num_stages": 2, "debug": False}
    return binder(*values, **options, instrumentation_mode="")[0]


def test_what_is_allowed_can_be_bound() -> None:
    names = [word for word in WORDS if is_allowed(word)]
    assert len(names) > 100
    assert bound(names) == dict.fromkeys(["x_ptr", *names, "M"], 1.5)


@pytest.mark.parametrize("name", ["options", "params", "debug", "specialize_impl"])
def test_what_is_reserved_could_not(name: str) -> None:
    assert not is_allowed(name)
    try:
        made = bound([name])
    except (SyntaxError, TypeError, AttributeError):
        return
    assert made != {"x_ptr": 1.5, name: 1.5, "M": 1.5}
