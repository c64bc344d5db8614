"""Whether a name of a spec meets one that a rendered module has for something else.

Knows no word of any template: a module is rendered again under names that nobody uses,
and where one name stands for two of those, two meanings met.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from gemmgen.base.errors import UsageError, quoted
from gemmgen.epilogue.checked import Epilogue
from gemmgen.epilogue.expression import Name, Node, substituted
from gemmgen.problem.layer import BIAS
from gemmgen.problem.tensors import Result
from gemmgen.select.plan import Plan
from gemmgen.select.table import Table

_UNLIKE = "unlike_any_{}_other"


class NameTaken(UsageError):
    """Names of a spec that its kernel's module cannot have, with the kernel's name."""

    def __init__(self, kernel: str, names: tuple[str, ...]) -> None:
        super().__init__(kernel, names)
        self.kernel = kernel
        self.names = names

    def __str__(self) -> str:
        said = ", ".join(self.message(name) for name in self.names)
        return f"kernel {quoted(self.kernel)}: {said}"

    def message(self, name: str) -> str:
        """What is wrong with one of them."""
        kind = "kernel" if name == self.kernel else "operand or result"
        return f"{kind} {quoted(name)} has a name that the kernel itself uses"


def disguised(plan: Plan) -> tuple[Plan, dict[str, str]]:
    """The same kernel under other names, and what each of those stands for.

    A result may be called `out`: the launcher's argument of that name becomes it. An
    operand that is a layer's parameter is known by its name.
    """
    own = [*(one.name for one in plan.operands), *(one.name for one in plan.results)]
    own += [one.target for one in plan.epilogue.statements]
    new = {name: _UNLIKE.format(at) for at, name in enumerate(dict.fromkeys(own))}
    new["out"] = "out"
    if plan.module:
        new[BIAS] = BIAS
    kernel = _UNLIKE.format("kernel")
    other = replace(
        plan,
        name=kernel,
        operands=tuple(replace(one, name=new[one.name]) for one in plan.operands),
        results=tuple(_result(one, new) for one in plan.results),
        epilogue=_epilogue(plan.epilogue, new),
        # The rows that were found: to choose them again would take long.
        tables=tuple(
            Table(one.target, one.rates, rows, ())
            for one, rows in zip(plan.tables, (plan.rows,), strict=False)
        ),
    )
    return other, {alias: name for name, alias in new.items()} | {kernel: plan.name}


def _result(one: Result, new: dict[str, str]) -> Result:
    return replace(one, name=new[one.name], value=new.get(one.value, one.value))


def _epilogue(epilogue: Epilogue, new: dict[str, str]) -> Epilogue:
    nodes: dict[str, Node] = {name: Name(alias) for name, alias in new.items()}
    return Epilogue(
        tuple(
            replace(one, target=new[one.target], value=substituted(one.value, nodes))
            for one in epilogue.statements
        ),
        tuple(replace(one, name=new[one.name]) for one in epilogue.operands),
        epilogue.accumulators,
    )


_WORD = re.compile(r"[^\W\d]\w*")


def clashes(text: str, other: str, aliases: Mapping[str, str]) -> tuple[str, ...]:
    """The names of a spec that stand for two things in one scope of a file.

    `other` is the same file with `aliases` in the place of those names.
    """
    words = _WORD.findall(text), _WORD.findall(other)
    if len(words[0]) == len(words[1]) and not any(_clashing(*words)):
        return ()  # whatever the scopes are, in a tenth of the time
    scopes = _scopes(ast.parse(text)), _scopes(ast.parse(other))
    taken: set[str] = set()
    for names, others in zip(*scopes, strict=True):
        if len(names) != len(others):  # what two names mean was taken for one thing
            taken.update(_miscounted(names, others, aliases))
            continue
        found = {meant for several in _clashing(names, others) for meant in several}
        taken.update(
            name
            for alias, name in aliases.items()
            if any(alias in meant for meant in found)
        )
    return tuple(name for name in aliases.values() if name in taken)


def _miscounted(
    names: list[str], others: list[str], aliases: Mapping[str, str]
) -> list[str]:
    """The names that stand in more places than they do under their aliases.

    If none does, any may be meant.
    """
    own = [(alias, name) for alias, name in aliases.items() if alias != name]
    more = [name for alias, name in own if names.count(name) > others.count(alias)]
    return more or [name for _, name in own]


def _clashing(names: list[str], others: list[str]) -> Iterator[set[str]]:
    """For each name with several meanings, what stands in its places in the other."""
    meanings: dict[str, set[str]] = {}
    for name, meant in zip(names, others, strict=True):
        meanings.setdefault(name, set()).add(meant)
    return (several for several in meanings.values() if len(several) > 1)


def _scopes(module: ast.Module) -> Iterator[list[str]]:
    """The names of a module's own scope, then of each function with what it uses."""
    functions = [one for one in module.body if isinstance(one, ast.FunctionDef)]
    rest = [one for one in module.body if not isinstance(one, ast.FunctionDef)]
    yield [one.name for one in functions] + [
        name for one in rest for name in _names(one)
    ]
    for one in functions:
        yield [name for part in ast.iter_child_nodes(one) for name in _names(part)]


def _names(node: ast.AST) -> Iterator[str]:
    """Every name below a node, of whatever kind, in the order of the tree."""
    for part in ast.walk(node):
        match part:
            case ast.Name(name) | ast.arg(name) | ast.FunctionDef(name):
                yield name
            case ast.alias():
                yield part.asname or part.name
