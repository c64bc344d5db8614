"""No operand has a name that a generated module uses for itself."""

import ast

import pytest

from gemmgen.gate.allowlist import bound_names
from gemmgen.gate.reserved import is_reserved
from gemmgen.render.names.parts import stems
from gemmgen.select.plan import Plan
from gemmgen.tables.functions import OPS
from tests import folders
from tests.own import OWN


def bound(tree: ast.Module) -> set[str]:
    """The names that a file and its functions bind."""
    found: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            found |= {(one.asname or one.name).split(".")[0] for one in statement.names}
        if isinstance(statement, ast.FunctionDef):
            found |= bound_names(list(ast.walk(statement)))
    return found


@pytest.mark.parametrize("plan", OWN.values(), ids=lambda plan: plan.name)
def test_what_a_module_binds_is_reserved(plan: Plan) -> None:
    files = [folders.text_of(plan.name, stem) for stem in stems(plan)]
    # What other files import may be the name of an operand here.
    tensors = (*plan.contraction.inputs, *plan.operands, *plan.results)
    own = {"launch"} | {one.name for one in tensors}
    left = {
        name
        for text in files
        for name in bound(ast.parse(text)) - own - {*OPS}
        if name[0].isalpha() and name.islower() and not name.startswith(plan.name)
    }
    assert [name for name in sorted(left) if not is_reserved(name)] == []
