"""The last gate before a module is written: its syntax tree against an allow-list.

Whatever a spec holds, a module can only import what is listed here, call what it
defines or is listed here, and run nothing when imported but definitions.
"""

import ast
import builtins
from collections.abc import Mapping, Sequence

from gemmgen.hardware.targets import TARGETS
from gemmgen.schedules import SCHEDULES
from gemmgen.tables.dtypes import DTYPES
from gemmgen.tables.functions import OPS

_NODES = (
    ast.Module, ast.Expr, ast.Constant, ast.If, ast.AnnAssign, ast.Name,
    ast.Attribute, ast.Load, ast.Store,
    ast.Import, ast.ImportFrom, ast.alias, ast.FunctionDef, ast.arguments, ast.arg,
    ast.keyword, ast.Return, ast.Assign, ast.AugAssign, ast.For, ast.With,
    ast.withitem, ast.Call, ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.Dict,
    ast.Starred, ast.BinOp, ast.UnaryOp, ast.Compare, ast.operator, ast.unaryop,
    ast.cmpop, ast.BoolOp, ast.And, ast.Or, ast.ClassDef,
)  # fmt: skip
_TOP = (ast.Import, ast.ImportFrom, ast.FunctionDef)
_IMPORTS = {("torch", None), ("triton", None), ("triton.language", "tl")}
_Imports = dict[tuple[int, str], set[tuple[str, str | None]]]
_IMPORTS_FROM: _Imports = {
    (0, "torch"): {("Tensor", None)},
    (0, "triton.experimental"): {("gluon", None)},
}
_SHARED = {
    "gradients.function": {
        "Gradient", "leaf_of", "main_grad_of", "matrix", "shaped", "unflattened",
    },
    "gradients.elementwise": {"Elementwise"},
    "operators.launcher": {"Checks", "Launches", "launcher", "rows"},
    "device": {
        "aligned", "finishes", "row_dot", "span", "split_range", "sum_splits",
        "swizzle",
    },
    "pipeline.blocks": {"boxes_of"},
    "pipeline.parts": {"load_part", "part_columns", "part_rows", "store_part"},
    "pipeline.roles": {"specialize"},
    "pipeline.simt": {
        "finishes", "multiply_add", "sum_splits", "tile_columns", "tile_rows",
    },
    "functions": {op.name for op in OPS.values() if not op.in_place},
    "support": {"config"},
    "tile": {"ANY", "FILL", "FULL", "Rates", "Tile"},
}  # fmt: skip
_OF_SHARED = set().union(*_SHARED.values())
_IMPORTS_FROM |= {
    (level, f"_runtime.{module}"): {(name, None) for name in names}
    for module, names in _SHARED.items()
    for level in (2, 3)
}
_IMPORTS_FROM[1, "tiles"] = {("TILES", None)}
_IMPORTS_FROM[1, "epilogue"] = {("epilogue", None)}
_IMPORTS_FROM[1, "backward"] = {("backward", None), ("saves", None)}
_IMPORTS_FROM[1, "grad_epilogue"] = {("GRAD_EPILOGUE", None)}
_IMPORTS_FROM[2, "_runtime.layers.base"] = {("KernelLinear", None)}
_RATES = tuple(map(str.upper, TARGETS))
"""What tables call the rates of a target."""
_OF_SHARED |= {"Tensor", "TILES", "epilogue", "backward", "saves"}
_OF_SHARED |= {"GRAD_EPILOGUE", *_RATES}
_BUILTINS = {"float", "len", "min", "range", "tuple"}
_ATTRIBUTES = {
    "torch": {row.torch for row in DTYPES.values()},
    "triton": {"autotune", "jit"},
    "tl": {
        "arange", "cdiv", "constexpr", "dot", "full", "load", "maximum", "minimum",
        "program_id", "store", "where", "zeros", "PropagateNan", "assume", "atomic_add",
        "debug_barrier", "int64", "num_programs", "range", "sum",
        *(row.triton for row in DTYPES.values()),
        *(op.triton[3:] for op in OPS.values() if op.in_place),
    },
    "gluon": {"jit"},
}  # fmt: skip
_OF_VALUES = {
    "ALL", "T", "bias", "device", "flatten", "index", "layout", "load",
    "number", "output", "outputs", "run", "shape", "store", "sum", "tensor", "to",
    "type", "unsqueeze", "view", "weight",
}  # fmt: skip

NAMES_OF_MODULES = frozenset(_BUILTINS | set(_ATTRIBUTES) | _OF_SHARED)
"""What any module may use by its plain name without defining it."""


_DECORATORS = ("triton.jit", "triton.autotune", "gluon.jit", "launcher")
_OF_LAYERS = {"KernelLinear", "staticmethod"}
"""What the class of a kernel uses, and no other file."""
_TOLD_OF_LAYERS = ["kernel", "weight_type", "bias_type", "activation"]


class NotAllowed(Exception):
    """A rendered module holds what no template writes: a fault of gemmgen."""


def check_module(
    tree: ast.Module, name: str, public: str, parts: Mapping[str, str] | None = None
) -> None:
    """Raise `NotAllowed` unless a file holds only what one of a kernel's may.

    `public` is what others take from it, which it defines once; `parts` are the folders
    of its backward's kernels, with their launchers.
    """
    for statement in tree.body[1:]:
        if not (isinstance(statement, _TOP) or _defined(statement)):
            raise _refused(statement, "runs when the module is imported")
    defined = [_defined(statement) for statement in tree.body]
    if defined.count(public) != 1:
        raise NotAllowed(f"{name} does not define {public} once")
    nodes = list(ast.walk(tree))
    bound = bound_names(nodes)
    kernels = {row.file: public + row.kernel_suffix for row in SCHEDULES.values()}
    kernels |= parts or {}
    beside: _Imports = {(1, file): {(kernel, None)} for file, kernel in kernels.items()}
    known = bound | NAMES_OF_MODULES | {*kernels.values()}
    known |= _OF_LAYERS if _is_layer(tree.body[-1], public) else set()
    if clash := bound & (set(_ATTRIBUTES) | set(dir(builtins)) & _BUILTINS):
        raise NotAllowed(f"{name} binds {sorted(clash)}")
    for node in nodes:
        _check_node(node, known, _IMPORTS_FROM | beside)


def _defined(statement: ast.stmt) -> str | None:
    """The function or constant that a statement defines."""
    if isinstance(statement, ast.FunctionDef):
        return statement.name
    if isinstance(statement, ast.ClassDef) and _is_layer(statement, statement.name):
        return statement.name
    if isinstance(statement, ast.Assign) and _is_data(statement):
        return ast.unparse(statement.targets[0])
    return None


def _is_layer(statement: ast.stmt, name: str) -> bool:
    """Whether it is a kernel's nn.Module: what it tells of it, and one method."""
    match statement:
        case ast.ClassDef(
            bases=[ast.Name("KernelLinear")],
            keywords=[],
            body=[ast.Expr(), *told, ast.FunctionDef("forward", decorator_list=[])],
            decorator_list=[],
        ):
            said = [
                ast.unparse(one.targets[0]) if isinstance(one, ast.Assign) else ""
                for one in told
            ]
            return statement.name == name and said == _TOLD_OF_LAYERS
    return False


_DATA = {
    "CHECK": "Checks",
    "LAUNCHES": "Launches",
    "GRADIENT": "Gradient",
    "GRAD_EPILOGUE": "Elementwise",
    "TILES": "Tile",
    **dict.fromkeys(_RATES, "Rates"),
}
"""What a file may have beside functions, and what that calls."""
_OF_TILES = {"ANY", "FILL", "FULL", *_RATES}


def _is_data(statement: ast.Assign) -> bool:
    """Whether it is `TILES = (Tile(…), …)`, `LAUNCHES = Launches(…)` or the like.

    What they are told are plain values and names, of tiles a few.
    """
    name, value = ast.unparse(statement.targets[0]), statement.value
    calls = value.elts if name == "TILES" and isinstance(value, ast.Tuple) else [value]
    if name not in _DATA:
        return False
    for call in calls:
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != _DATA[name]:
            return False
        told = [*call.args, *(one.value for one in call.keywords)]
        names = {one.id for one in told if isinstance(one, ast.Name)}
        if not all(map(_is_plain, told)) or (name == "TILES" and names - _OF_TILES):
            return False
    return True


def _is_plain(node: ast.expr) -> bool:
    """Whether it is a number, a word, a name, `2 * FILL`, or several of one kind."""
    match node:
        case ast.BinOp(left, ast.Mult(), ast.Name("FILL")):
            return _is_plain(left)
        case ast.Dict(keys, values):
            told = [getattr(one, "value", None) for one in (*keys, *values)]
            return all(isinstance(one, str) for one in told)
        case ast.Constant(str(word)):
            return word.isidentifier()
        case ast.Constant(value):
            return isinstance(value, int | float)
        case ast.Tuple(elts):
            numbers = all(isinstance(getattr(one, "value", 0.5), int) for one in elts)
            return numbers or all(isinstance(one, ast.Name) for one in elts)
    return isinstance(node, ast.Name)


def bound_names(nodes: Sequence[ast.AST]) -> set[str]:
    """Every name that the module itself binds, but for imports."""
    bound = set()
    for node in nodes:
        match node:
            case ast.arg():
                bound.add(node.arg)
            case ast.FunctionDef():
                bound.add(node.name)
            case ast.Name(ctx=ast.Store()):
                bound.add(node.id)
    return bound


def _check_node(node: ast.AST, known: set[str], imports: _Imports) -> None:
    if not isinstance(node, _NODES):
        raise _refused(node, "is no node that templates write")
    match node:
        case ast.Import():
            for alias in node.names:
                if (alias.name, alias.asname) not in _IMPORTS:
                    raise _refused(node, f"imports {alias.name}")
        case ast.ImportFrom():
            names = {(alias.name, alias.asname) for alias in node.names}
            if not names <= imports.get((node.level, node.module or ""), set()):
                raise _refused(node, f"imports from {node.module}")
        case ast.ClassDef() if not _is_layer(node, node.name):
            raise _refused(node, "is no layer")
        case ast.Name() if node.id not in known:
            raise _refused(node, f"uses the name {node.id}")
        case ast.Attribute():
            base = node.value.id if isinstance(node.value, ast.Name) else None
            if node.attr not in _ATTRIBUTES.get(base or "", _OF_VALUES):
                raise _refused(node, f"uses the attribute {node.attr}")
        case ast.FunctionDef():
            for decorator in node.decorator_list:
                _check_decorator(decorator)


def _check_decorator(node: ast.expr) -> None:
    """One of `_DECORATORS`, such as `@triton.jit`, or a call of one."""
    function = node.func if isinstance(node, ast.Call) else node
    if ast.unparse(function) not in _DECORATORS:
        raise _refused(node, "is no decorator of a kernel")


def _refused(node: ast.AST, why: str) -> NotAllowed:
    line = getattr(node, "lineno", 0)
    return NotAllowed(f"line {line} of a rendered module {why}")
