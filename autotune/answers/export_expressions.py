"""Front matter's expressions as C++: what is known is computed, what depends on the shape stays an expression.

An exported launcher takes the shape as arguments, so `ceil_div(T, BLOCK_M)` becomes `host::ceil_div(T, 64)` there.
All C++ arithmetic is on `long long`. Values are non-negative, where Python's `//` and `%` are C++'s `/` and `%`.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import nodes

from autotune.core.errors import AutotuneError
from autotune.families.expressions import Expression, cpp_literal, parse_expression
from autotune.families.functions import FUNCTIONS

_ATOM, _PRODUCT, _SUM, _COMPARISON, _AND, _OR, _CONDITIONAL = range(7)


class NotInCpp(AutotuneError):
    """An expression over the shape that has no C++ form here; its caller fixes the shape instead."""


@dataclass(frozen=True)
class Code:
    """A C++ expression; `level` tells how loosely its outermost operator binds."""

    text: str
    level: int = _ATOM

    def within(self, level: int) -> str:
        """The text, in parentheses where an operand of `level` needs them."""
        return self.text if self.level <= level else f"({self.text})"


Known = Any
"""A plain Python value: number, text, boolean, or an object whose fields are read (the device)."""

_BINARY: dict[type, tuple[Callable[[Any, Any], Any], str, int]] = {
    nodes.Add: (operator.add, "+", _SUM),
    nodes.Sub: (operator.sub, "-", _SUM),
    nodes.Mul: (operator.mul, "*", _PRODUCT),
    nodes.FloorDiv: (operator.floordiv, "/", _PRODUCT),
    nodes.Mod: (operator.mod, "%", _PRODUCT),
}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "lteq": "<=", "gt": ">", "gteq": ">="}
_CALLS = {"ceil_div": "host::ceil_div", "min": "std::min<long long>", "max": "std::max<long long>"}


def to_cpp(expression: Expression, namespace: Mapping[str, Known | Code]) -> Known | Code:
    """The value where it is known, else C++ over the names that `namespace` maps to `Code`.

    Raises:
        NotInCpp: the part that is not known uses something that has no C++ form.
        ExpressionError: the part that is known cannot be evaluated.
    """
    if not any(isinstance(namespace.get(name), Code) for name in expression.names):
        return expression(namespace)
    return _Translator(namespace).visit(parse_expression(expression.text))


def text(value: Known | Code) -> str:
    """C++ spelling of a number, a boolean or an expression."""
    if isinstance(value, Code):
        return value.text
    return f"{value!r}f" if isinstance(value, float) else str(cpp_literal(value))


def largest(values: Sequence[Known | Code]) -> Known | Code:
    """The largest of whole numbers; 0 of none."""
    known = max((int(value) for value in values if not isinstance(value, Code)), default=0)
    found: Known | Code = known
    for value in values:
        if isinstance(value, Code):
            found = value if found == 0 else Code(f"{_CALLS['max']}({_code(found).text}, {value.text})")
    return found


class _Translator:
    def __init__(self, namespace: Mapping[str, Known | Code]) -> None:
        self._namespace = namespace

    def visit(self, node: Any) -> Known | Code:  # noqa: PLR0911 - one case a kind of node
        match node:
            case nodes.Const():
                return node.value
            case nodes.Name():
                return self._namespace[node.name]
            case nodes.Getattr():
                return getattr(self._known(node.node), node.attr)
            case nodes.CondExpr() if node.expr2 is not None:
                return self._conditional(node)
            case nodes.Compare(ops=[_]):
                return self._compare(node)
            case nodes.And() | nodes.Or() | nodes.Not():
                return self._logical(node)
            case nodes.Call(node=nodes.Name(name=name)) if not node.kwargs:
                return self._call(name, [self.visit(argument) for argument in node.args])
            case nodes.BinExpr() if type(node) in _BINARY:
                return self._binary(node)
        raise NotInCpp(f"no C++ form for {type(node).__name__}")

    def _known(self, node: Any) -> Known:
        value = self.visit(node)
        if isinstance(value, Code):
            raise NotInCpp(f"{value.text} is not known before the launch")
        return value

    def _conditional(self, node: nodes.CondExpr) -> Known | Code:
        test = self.visit(node.test)
        if not isinstance(test, Code):
            return self.visit(node.expr1 if test else node.expr2)
        parts = (_code(self.visit(node.expr1)), _code(self.visit(node.expr2)))
        return Code(f"{test.within(_OR)} ? {parts[0].within(_OR)} : {parts[1].within(_OR)}", _CONDITIONAL)

    def _compare(self, node: nodes.Compare) -> Known | Code:
        left, operand = self.visit(node.expr), node.ops[0]
        if operand.op not in _COMPARE:
            raise NotInCpp(f"no C++ form for the comparison {operand.op!r}")
        right = self.visit(operand.expr)
        symbol = _COMPARE[operand.op]
        if isinstance(left, Code) or isinstance(right, Code):
            return Code(f"{_code(left).within(_SUM)} {symbol} {_code(right).within(_SUM)}", _COMPARISON)
        return getattr(operator, {"lteq": "le", "gteq": "ge"}.get(operand.op, operand.op))(left, right)

    def _logical(self, node: nodes.And | nodes.Or | nodes.Not) -> Known | Code:
        if isinstance(node, nodes.Not):
            value = self.visit(node.node)
            return Code(f"!{value.within(_ATOM)}") if isinstance(value, Code) else not value
        left, decisive = self.visit(node.left), isinstance(node, nodes.Or)
        if not isinstance(left, Code):
            return left if bool(left) == decisive else self.visit(node.right)
        right = self.visit(node.right)
        if not isinstance(right, Code):
            return True if decisive and right else False if not decisive and not right else left
        symbol, level = ("||", _OR) if decisive else ("&&", _AND)
        return Code(f"{left.within(level)} {symbol} {right.within(_COMPARISON)}", level)

    def _call(self, name: str, arguments: list[Known | Code]) -> Known | Code:
        if not any(isinstance(argument, Code) for argument in arguments):
            return FUNCTIONS[name](*arguments)
        if name not in _CALLS or len(arguments) != 2:
            raise NotInCpp(f"no C++ form for {name} of {len(arguments)} arguments")
        return Code(f"{_CALLS[name]}({', '.join(_code(argument).text for argument in arguments)})")

    def _binary(self, node: Any) -> Known | Code:
        operation, symbol, level = _BINARY[type(node)]
        left, right = self.visit(node.left), self.visit(node.right)
        if not isinstance(left, Code) and not isinstance(right, Code):
            return operation(left, right)
        neutral = 0 if level == _SUM else 1
        if right == neutral and not isinstance(node, nodes.Mod):
            return left
        if left == neutral and isinstance(node, nodes.Add | nodes.Mul):
            return right
        return Code(f"{_code(left).within(level)} {symbol} {_code(right).within(level - 1)}", level)


def _code(value: Known | Code) -> Code:
    if isinstance(value, Code):
        return value
    if isinstance(value, int) and value >= 0:
        return Code(text(value))
    raise NotInCpp(f"no C++ form for {value!r} beside the shape")
