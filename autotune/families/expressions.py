"""Expressions of the front matter: sandboxed Jinja, evaluated for one configuration or a whole grid at once.

Nothing here calls `eval`: one configuration goes through Jinja's own compiler of expressions; a grid of
configurations walks the same parsed expression with NumPy arrays in place of numbers.

Expressions are evaluated in the process that asks, so they know what takes a bounded time and memory only: of Jinja's
filters and of the methods of texts those that make nothing larger, numbers up to a size, texts up to a length.
"""

import math
import operator
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from jinja2 import StrictUndefined, TemplateSyntaxError, Undefined, nodes
from jinja2.exceptions import SecurityError, UndefinedError
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from autotune.core.errors import ExpressionError
from autotune.families.functions import FUNCTIONS, GRID_FUNCTIONS

_LARGEST_POWER = 64
_LARGEST_BITS = 1000  # of a whole number; a float's largest has 1024
_TOO_LARGE = f"whole numbers have at most {_LARGEST_BITS} bits"
_NO_NUMBERS = (str, bytes, list, tuple)
_LONGEST = 4096
_DEEPEST = 100
_FILTERS = frozenset(
    ("abs", "count", "first", "float", "int", "last", "length", "lower", "max", "min", "round", "upper")
)
_METHODS = frozenset(("endswith", "lower", "split", "startswith", "upper"))
_KINDS = (
    nodes.Const, nodes.Name, nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Tuple, nodes.List, nodes.Compare,
    nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Neg, nodes.Pos, nodes.CondExpr, nodes.Add, nodes.Sub,
    nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow, nodes.Concat, nodes.Call, nodes.Filter, nodes.Test,
)  # fmt: skip


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja without attribute access to Python's internals, without undefined names, and with bounded powers."""

    intercepted_binops = frozenset({"**", "*", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Refuse powers, products and texts that could fill the memory."""
        if type(left) is int and type(right) is int and operator != "**":
            if operator == "*" and left.bit_length() + right.bit_length() > _LARGEST_BITS + 1:
                raise SecurityError(_TOO_LARGE)  # a product may have one bit less
            return left * right if operator == "*" else left % right
        if operator == "**":
            if not (isinstance(right, int | float) and abs(right) <= _LARGEST_POWER):
                raise SecurityError(f"an exponent of {_brief(right)} is larger than {_LARGEST_POWER}")
            if isinstance(left, int) and left.bit_length() * abs(right) > _LARGEST_BITS:
                raise SecurityError(_TOO_LARGE)
        elif isinstance(left, _NO_NUMBERS) or isinstance(right, _NO_NUMBERS):
            raise SecurityError("only numbers can be multiplied" if operator == "*" else "% is for numbers only")
        return super().call_binop(context, operator, left, right)


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.ndarray | np.generic)


def _brief(value: Any) -> str:
    """A value in a message, whatever its size."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"{value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def make_environment(**options: Any) -> Sandbox:
    """The sandbox with this project's functions and nothing else among its globals."""
    environment = Sandbox(undefined=StrictUndefined, **options)
    environment.globals.clear()
    environment.globals.update(FUNCTIONS)
    return environment


def cpp_literal(value: Any) -> Any:
    """C++ spelling of what `{{ … }}` prints: of a boolean `true` or `false`; the rest is printed as it is."""
    return str(value).lower() if isinstance(value, bool) else value


CUDA_TEXT = make_environment(
    trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, autoescape=False, finalize=cpp_literal
)
"""Renders kernels, launchers and what else is CUDA."""

_ENVIRONMENT = make_environment()


@lru_cache(maxsize=4096)
def _compiled(text: str) -> Callable[[Mapping[str, Any]], Any]:
    """Every plan of a template evaluates the same texts again.

    What Jinja's `compile_expression` does, without copying the namespace twice for each of the dozens in a look-up.
    """
    result = nodes.Assign(nodes.Name("result", "store"), _known_kinds(parse_expression(text)), lineno=1)
    template = _ENVIRONMENT.from_string(nodes.Template([result], lineno=1))

    def call(namespace: Mapping[str, Any]) -> Any:
        context = template.new_context({**FUNCTIONS, **namespace}, shared=True)
        for _ in template.root_render_func(context):
            pass
        return context.vars["result"]

    return call


def parse_expression(text: str) -> nodes.Expr:
    """The expression as a tree; the text must be one expression and nothing else."""
    parser = Parser(_ENVIRONMENT, text, state="variable")
    tree = parser.parse_expression()
    if not parser.stream.eos:
        raise TemplateSyntaxError("there is more after the expression", parser.stream.current.lineno)
    tree.set_environment(_ENVIRONMENT)
    return tree


def _known_kinds(tree: nodes.Expr) -> nodes.Expr:
    """The same tree, once it is known to be of bounded depth, and of parts that take a bounded time and memory.

    Raises:
        SecurityError: it is not.
    """
    waiting: list[tuple[nodes.Node, int]] = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > _DEEPEST:
            raise SecurityError(f"it is nested more than {_DEEPEST} deep, as sums of so many terms are")
        waiting += [(child, depth + 1) for child in node.iter_child_nodes()]
        why = _why_not_known(node)
        if why:
            raise SecurityError(why)
    return tree


def _why_not_known(node: nodes.Node) -> str:
    match node:
        case nodes.Const(value=int() as value) if value.bit_length() > _LARGEST_BITS:
            return _TOO_LARGE
        case nodes.Filter(name=name) if name not in _FILTERS:
            return f"there is no filter {name!r}; there are {', '.join(sorted(_FILTERS))}"
        case nodes.Call(node=nodes.Name()):
            return ""  # what is no function is undefined
        case nodes.Call(node=nodes.Getattr(attr=name)) if name in _METHODS:
            return ""
        case nodes.Call():
            return f"what is called is a function, or a method of texts: {', '.join(sorted(_METHODS))}"
    return "" if isinstance(node, _KINDS) else f"{type(node).__name__} is no part of an expression"


class Expression:
    """One expression. Equal texts are equal expressions.

    Raises:
        ExpressionError: the text does not parse.
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise ExpressionError(f"{text!r} is not an expression; write it as text")
        self.text = text
        if len(text) > _LONGEST:
            raise ExpressionError(f"the expression {text[:40]!r}… has {len(text):,} characters, more than {_LONGEST:,}")
        try:
            self._tree = parse_expression(text)
        except TemplateSyntaxError as error:
            raise ExpressionError(f"cannot parse the expression {text!r}: {error.message}") from error
        except RecursionError as error:
            raise ExpressionError(f"the expression {text[:40]!r}… is nested too deeply") from error

    @cached_property
    def names(self) -> frozenset[str]:
        """Names the expression reads, functions excluded."""
        template = nodes.Template([nodes.Output([self._known_tree], lineno=1)], lineno=1)
        template.set_environment(_ENVIRONMENT)
        return frozenset(find_undeclared_variables(template)) - FUNCTIONS.keys()

    @cached_property
    def _known_tree(self) -> nodes.Expr:
        """Looked through when first needed, as `_call`."""
        try:
            return _known_kinds(self._tree)
        except SecurityError as error:
            raise ExpressionError(f"in {_shortened(self.text)}: not allowed: {error.message}") from error

    @cached_property
    def _call(self) -> Callable[[Mapping[str, Any]], Any]:
        """Compiled when first called: a look-up reads hundreds of expressions and calls a few."""
        return _compiled(self.text)

    def __call__(self, namespace: Mapping[str, Any]) -> Any:
        """The value for one configuration.

        Raises:
            ExpressionError: an unknown name, a forbidden operation, or arithmetic that fails.
        """
        try:
            value = self._call(namespace)
            if isinstance(value, Undefined):
                value._fail_with_undefined_error()
            if not isinstance(value, bool | int | float | str):
                raise ExpressionError(f"{self.text!r} is a {type(value).__name__}, not a number, text or boolean")
            if isinstance(value, int) and value.bit_length() > _LARGEST_BITS:
                raise SecurityError(_TOO_LARGE)
        except TemplateSyntaxError as error:  # a filter or test that does not exist
            raise ExpressionError(f"cannot parse the expression {self.text!r}: {error.message}") from error
        except UndefinedError as error:
            raise ExpressionError(f"in {self.text!r}: {error.message}; known: {_known(namespace)}") from error
        except SecurityError as error:
            raise ExpressionError(f"in {_shortened(self.text)}: not allowed: {error.message}") from error
        except (TypeError, ValueError, ArithmeticError) as error:
            raise ExpressionError(f"cannot evaluate {self.text!r}: {error}") from error
        return value

    def whole(self, namespace: Mapping[str, Any]) -> int:
        """The value as a size or count.

        Raises:
            ExpressionError: also where it is not a whole number.
        """
        value = self(namespace)
        if isinstance(value, str) or not math.isfinite(value) or value != int(value):
            raise ExpressionError(f"{self.text!r} is {value!r}, not a whole number")
        return int(value)

    def over(self, namespace: Mapping[str, Any]) -> Any:
        """The values for arrays that broadcast against one another; the result broadcasts alike.

        Raises:
            ExpressionError: as for one configuration.
        """
        try:
            with np.errstate(divide="raise", invalid="raise"):
                return _Walker(namespace).visit(self._known_tree)
        except (_NotVectorised, FloatingPointError):
            # Division by zero too: `and` and `if` may guard it for one configuration, never for a whole array.
            return self._each(namespace)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise ExpressionError(f"cannot evaluate {self.text!r}: {error}") from error

    def _each(self, namespace: Mapping[str, Any]) -> Any:
        """Element by element, for the rare construct that the walker does not know (a filter, a test)."""
        names = sorted(self.names & namespace.keys())
        if not names:
            return self(namespace)
        arrays = np.broadcast_arrays(*(np.asarray(namespace[name], dtype=object) for name in names))
        results = [
            self({**namespace, **dict(zip(names, row, strict=True))})
            for row in zip(*(array.ravel() for array in arrays), strict=True)
        ]
        return np.array(results).reshape(arrays[0].shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


def _shortened(text: str) -> str:
    return repr(text) if len(text) <= 200 else f"{text[:200]!r}…"


def _known(namespace: Mapping[str, Any]) -> str:
    return ", ".join(sorted(namespace))


class _NotVectorised(Exception):
    """The walker met a node that it has no array form for."""


def _product(a: Any, b: Any) -> Any:
    if not (_is_number(a) and _is_number(b)):
        raise ExpressionError("not allowed: only numbers can be multiplied")
    return a * b


def _rest(a: Any, b: Any) -> Any:
    if not (_is_number(a) and _is_number(b)):
        raise ExpressionError("not allowed: % is for numbers only")
    return a % b


_BINARY: dict[type[nodes.BinExpr], Callable[[Any, Any], Any]] = {
    nodes.Add: operator.add,
    nodes.Sub: operator.sub,
    nodes.Mul: _product,
    nodes.Div: operator.truediv,
    nodes.FloorDiv: operator.floordiv,
    nodes.Mod: _rest,
}

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
    "in": np.isin,
    "notin": lambda a, b: np.isin(a, b, invert=True),
}


class _Walker:
    """Evaluates a parsed expression with arrays for names."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace

    def visit(self, node: nodes.Node) -> Any:  # noqa: C901, PLR0911 - one case a kind of node
        match node:
            case nodes.Const():
                return node.value
            case nodes.Name():
                return self._name(node.name)
            case nodes.Getattr():
                return self._attribute(node)
            case nodes.Tuple() | nodes.List():
                return [self.visit(item) for item in node.items]
            case nodes.Compare():
                return self._compare(node)
            case nodes.And() | nodes.Or():
                return self._logical(node)
            case nodes.Not():
                return np.logical_not(self.visit(node.node))
            case nodes.Neg():
                return -self.visit(node.node)
            case nodes.CondExpr() if node.expr2 is not None:
                return np.where(self.visit(node.test), self.visit(node.expr1), self.visit(node.expr2))
            case nodes.Call(node=nodes.Name(name=name)) if name in GRID_FUNCTIONS and not node.kwargs:
                return GRID_FUNCTIONS[name](*(self.visit(argument) for argument in node.args))
        if type(node) in _BINARY:
            return _BINARY[type(node)](self.visit(node.left), self.visit(node.right))  # type: ignore[index, attr-defined]
        raise _NotVectorised

    def _name(self, name: str) -> Any:
        try:
            return self._namespace[name]
        except KeyError:
            raise ExpressionError(f"{name!r} is undefined; known: {_known(self._namespace)}") from None

    def _attribute(self, node: nodes.Getattr) -> Any:
        if node.attr.startswith("_"):
            raise ExpressionError(f"not allowed: attribute {node.attr!r}")
        owner = self.visit(node.node)
        if isinstance(owner, np.ndarray) or not hasattr(owner, node.attr):
            raise ExpressionError(f"{type(owner).__name__!r} has no attribute {node.attr!r}")
        return getattr(owner, node.attr)

    def _compare(self, node: nodes.Compare) -> Any:
        left, result = self.visit(node.expr), np.True_
        for operand in node.ops:
            right = self.visit(operand.expr)
            result = np.logical_and(result, _COMPARE[operand.op](left, right))
            left = right
        return result

    def _logical(self, node: nodes.And | nodes.Or) -> Any:
        left, right = self.visit(node.left), self.visit(node.right)
        first, second = (right, left) if isinstance(node, nodes.And) else (left, right)
        return np.where(np.asarray(left, dtype=bool), first, second)
