"""No operand has a name that a generated module uses for itself."""

import ast
from pathlib import Path

import pytest

from gemmgen.gate.allowlist import bound_names
from gemmgen.gate.reserved import is_reserved
from gemmgen.select.plan import Plan, plans
from gemmgen.spec.parse import parse
from gemmgen.tables.functions import OPS

ROOT = Path(__file__).resolve().parent.parent
KERNELS = plans(parse((ROOT / "spec.yaml").read_bytes(), "spec.yaml"))


def bound(tree: ast.Module) -> set[str]:
    """The names that a module and its functions bind; those of an epilogue's functions
    and of `swizzle` are theirs alone."""
    found: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            found |= {(one.asname or one.name).split(".")[0] for one in statement.names}
        if isinstance(statement, ast.FunctionDef):
            alone = statement.name in {*OPS, "swizzle"}
            found |= bound_names([statement] if alone else list(ast.walk(statement)))
    return found


@pytest.mark.parametrize("plan", KERNELS, ids=lambda plan: plan.name)
def test_what_a_module_binds_is_reserved(plan: Plan) -> None:
    text = (ROOT / "generated" / f"{plan.name}.py").read_text(encoding="utf-8")
    own = {one.name for one in (plan.a, plan.b, *plan.operands, *plan.results)}
    left = {
        name
        for name in bound(ast.parse(text)) - own - {*OPS}
        if name[0].isalpha() and name.islower() and not name.startswith(plan.name)
    }
    assert [name for name in sorted(left) if not is_reserved(name)] == []
