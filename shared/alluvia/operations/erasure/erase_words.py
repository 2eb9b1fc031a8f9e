"""Texts and numbers of a condition as other texts show them: as they are, in SQL, in JSON, in URLs. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from urllib.parse import quote, quote_plus

from alluvia.engine.conditions.condition import expression_of, words_in
from alluvia.engine.queries.tree import Node, is_constant, walk

_OF_JSON = frozenset({"->>", "json_extract_string"})
_WITH_KEY = _OF_JSON | {"->", "json_extract", "json_value", "struct_extract", "array_extract"}
_CODE = re.compile(r"\\\\u[0-9a-f]{4}|%[0-9A-F]{2}")
"""The code of a character in JSON or a URL, in the expression for a form."""
_BEFORE = r"(?:(?<!\w)|(?<=\\[bfnrt])|(?<=\\u[0-9a-fA-F]{4})|(?<=%[0-9a-fA-F]{2}))"
"""What stands before a word: no letter or digit, unless it ends the code of another character in JSON or a URL."""


def words_of(where: str) -> frozenset[str]:
    """Return the texts and numbers in a condition, as text. Raises `Invalid` for what is no condition."""
    return words_in(expression_of(where))


def name_words_of(where: str) -> frozenset[str]:
    """Return the texts in a condition that a name may repeat: no numbers, and no keys that say where a value is."""
    expression = expression_of(where)
    keys = [node["children"][1] for node in walk(expression) if node.get("function_name") in _WITH_KEY]
    paths = {part for key in keys for word in words_in(key) for part in (word, word.removeprefix("$."))}
    return frozenset(word for word in words_in(expression) - paths if not word.isdecimal())


def names_values(where: str) -> bool:
    """Whether every row that a condition matches has one of the texts and numbers in it. Raises `Invalid`.

    That holds for equality and IN. Rows that LIKE or `lower(…)` match may have texts that the condition does not show.
    """
    return _names_values(expression_of(where))


def _names_values(node: Node) -> bool:
    kind = node.get("type")
    if kind == "CONJUNCTION_AND":
        return any(map(_names_values, node["children"]))
    if kind == "CONJUNCTION_OR":
        return all(map(_names_values, node["children"]))
    if kind == "COMPARE_EQUAL":
        sides = (node["left"], node["right"])
        return any(map(is_constant, sides)) and any(map(_is_field, sides))
    if kind == "COMPARE_IN":
        field, *values = node["children"]
        return _is_field(field) and all(map(is_constant, values))
    return False


def _is_field(node: Node) -> bool:
    return node.get("type") == "COLUMN_REF" or node.get("function_name") in _OF_JSON


def word_pattern(words: Collection[str]) -> re.Pattern[str] | None:
    """Return a pattern that finds whole words in a text; None if no words are given.

    A word is also found as a text of SQL has it (`O''Neil`), one of JSON (`jos\\u00e9`, `a\\/b`), also within another
    text of JSON, and one of a URL or a form.
    """
    if not words:
        return None
    forms = sorted({form for word in words for form in _forms(word)})
    return re.compile(rf"{_BEFORE}(?:{'|'.join(map(_any_case, forms))})(?!\w)")


def _forms(word: str) -> Iterator[str]:
    plain = {word, word.replace("'", "''")}
    once = {form for text in plain for form in _in_json(text)}
    yield from plain
    yield from once
    yield from (form for text in once for form in _in_json(text))
    yield quote(word, safe="")
    yield quote_plus(word)


def _in_json(text: str) -> Iterator[str]:
    for ascii_only in (True, False):
        escaped = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        yield escaped
        yield escaped.replace("/", "\\/")


def _any_case(form: str) -> str:
    """Return the expression for a form, which finds codes of characters with small and with capital letters."""
    return _CODE.sub(lambda found: f"(?i:{found[0]})", re.escape(form))
