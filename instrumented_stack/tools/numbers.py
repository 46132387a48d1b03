"""Tools on numbers: exact arithmetic, units, dates. Nothing is evaluated that is not arithmetic."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from datetime import date, timedelta
from fractions import Fraction

from instrumented_stack.errors import BadRequest

_BINARY: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda left, right: Fraction(left // right),
    ast.Mod: operator.mod,
}
# Unit: (dimension, factor to the base unit).
UNITS = {
    "m": ("length", Fraction(1)),
    "km": ("length", Fraction(1000)),
    "cm": ("length", Fraction(1, 100)),
    "mile": ("length", Fraction(1609344, 1000)),
    "foot": ("length", Fraction(3048, 10000)),
    "inch": ("length", Fraction(254, 10000)),
    "kg": ("mass", Fraction(1)),
    "g": ("mass", Fraction(1, 1000)),
    "t": ("mass", Fraction(1000)),
    "pound": ("mass", Fraction(45359237, 100000000)),
    "s": ("time", Fraction(1)),
    "min": ("time", Fraction(60)),
    "h": ("time", Fraction(3600)),
    "day": ("time", Fraction(86400)),
    "l": ("volume", Fraction(1)),
    "gallon": ("volume", Fraction(3785411784, 1000000000)),
}
_CONVERSION = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s+(?:to|in)\s+([a-z]+)", re.IGNORECASE)
_DAYS = re.compile(r"(\d{4}-\d{2}-\d{2})\s*([+-])\s*(\d+)\s*(day|week)s?")
_BETWEEN = re.compile(r"(\d{4}-\d{2}-\d{2})\s+until\s+(\d{4}-\d{2}-\d{2})")


def calculator(expression: str) -> str:
    """The exact value of an arithmetic expression (+ - * / // % ** and brackets). Raises BadRequest."""
    if len(expression) > 500:
        raise BadRequest("the expression is longer than 500 characters")
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
        return str(value.numerator) if value.denominator == 1 else f"{float(value):.12g}"
    except BadRequest:
        raise
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
        raise BadRequest(f"cannot calculate {expression!r}: {error}") from None


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return Fraction(str(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow):
            if right.denominator != 1 or abs(right) > 1_000 or left.numerator.bit_length() > 256:
                raise BadRequest("powers must be whole, and small enough to write down")
            return Fraction(left ** int(right))
        if type(node.op) in _BINARY:
            return _BINARY[type(node.op)](left, right)
    raise BadRequest("only numbers, brackets and + - * / // % ** are understood")


def convert_units(question: str) -> str:
    """`12 km in mile`, `2026-01-31 + 6 weeks`, `2026-01-01 until 2026-03-01`. Raises BadRequest."""
    if match := _BETWEEN.search(question):
        return f"{(_day(match[2]) - _day(match[1])).days} days"
    if match := _DAYS.search(question):
        count = int(match[3]) * (7 if match[4] == "week" else 1)
        try:
            return (_day(match[1]) + timedelta(days=count if match[2] == "+" else -count)).isoformat()
        except OverflowError:
            raise BadRequest("that date lies outside the calendar") from None
    match = _CONVERSION.search(question)
    if not match:
        raise BadRequest(f"no conversion understood in {question!r}")
    source, target = _unit(match[2]), _unit(match[3])
    if source[0] != target[0]:
        raise BadRequest(f"{match[2]} is a {source[0]}, {match[3]} a {target[0]}")
    return f"{float(Fraction(match[1]) * source[1] / target[1]):.6g} {match[3]}"


def _unit(name: str) -> tuple[str, Fraction]:
    low = name.lower()
    for candidate in (low, low.removesuffix("s"), low.removesuffix("es"), {"feet": "foot"}.get(low, low)):
        if candidate in UNITS:
            return UNITS[candidate]
    raise BadRequest(f"unknown unit {name!r}; known: {', '.join(UNITS)}")


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise BadRequest(f"{text!r} is not a date: {error}") from None
