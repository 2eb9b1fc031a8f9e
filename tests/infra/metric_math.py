"""Evaluates CloudWatch's metric math for one period, as far as the stack uses it."""

from __future__ import annotations

import re
from collections.abc import Mapping

TOKEN = re.compile(r"\s*(IF|FILL|[a-z]\w*|\d+|>=|[>+*/(),])")


def evaluate(expression: str, metrics: Mapping[str, float | None]) -> float | None:
    """The value of an expression; None stands for no data, as it does among `metrics`."""
    tokens = TOKEN.findall(expression)
    assert "".join(tokens) == expression.replace(" ", ""), expression
    value = _comparison(tokens, metrics)
    assert not tokens, tokens
    return value


def _comparison(tokens: list[str], metrics: Mapping[str, float | None]) -> float | None:
    left = _sum(tokens, metrics)
    if tokens and tokens[0] in (">", ">="):
        operator, right = tokens.pop(0), _sum(tokens, metrics)
        if left is None or right is None:
            return None
        return float(left > right if operator == ">" else left >= right)
    return left


def _sum(tokens: list[str], metrics: Mapping[str, float | None]) -> float | None:
    left = _product(tokens, metrics)
    while tokens and tokens[0] == "+":
        tokens.pop(0)
        right = _product(tokens, metrics)
        left = None if left is None or right is None else left + right
    return left


def _product(tokens: list[str], metrics: Mapping[str, float | None]) -> float | None:
    left = _atom(tokens, metrics)
    while tokens and tokens[0] in ("*", "/"):
        operator, right = tokens.pop(0), _atom(tokens, metrics)
        if left is None or right is None or (operator == "/" and right == 0):
            left = None
        else:
            left = left * right if operator == "*" else left / right
    return left


def _atom(tokens: list[str], metrics: Mapping[str, float | None]) -> float | None:
    token = tokens.pop(0)
    if token in ("IF", "FILL", "("):
        if token != "(":
            assert tokens.pop(0) == "("
        found = [_comparison(tokens, metrics)]
        while tokens.pop(0) == ",":
            found.append(_comparison(tokens, metrics))
        if token == "IF":
            condition, then, otherwise = found
            return None if condition is None else then if condition else otherwise
        if token == "FILL":
            value, default = found
            return default if value is None else value
        (inner,) = found
        return inner
    return float(token) if token.isdigit() else metrics[token]
