"""What edits of a syntax tree are made of."""

import ast
import copy
from collections.abc import Callable

Edit = Callable[[ast.AST], ast.AST | None]
"""What stands in a node's place; None where the node is left as it is."""


def call_of(node: ast.AST, *functions: str) -> ast.Call | None:
    """The node if it calls one of these functions."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in functions:
        return node
    return None


def keyword(call: ast.Call, name: str) -> ast.keyword | None:
    """An argument that is passed by name."""
    return next((one for one in call.keywords if one.arg == name), None)


def with_keyword(call: ast.Call, name: str, value: ast.expr | None) -> ast.Call:
    """The call with a keyword's value replaced, or the keyword gone for None."""
    new = copy.copy(call)
    new.keywords = [
        ast.keyword(one.arg, value) if one.arg == name and value else one
        for one in call.keywords
        if one.arg != name or value
    ]
    return new


def expression(text: str) -> ast.expr:
    """Source text as a node."""
    return ast.parse(text, mode="eval").body


def passed_as(name: str, old: str, value: str) -> Edit:
    """Another value for what is passed by name."""

    def edit(node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.keyword) and ast.unparse(node) == f"{name}={old}":
            return ast.keyword(name, expression(value))
        return None

    return edit
