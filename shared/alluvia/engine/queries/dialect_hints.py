"""What to write instead of a form of another system that DuckDB does not take. Pure.

Texts that its parser refuses are judged by their tokens, so words in quotes and comments do not count. Names that
it does not find once a text is parsed are in `foreign_functions`.
"""

from __future__ import annotations

from collections.abc import Sequence

from alluvia.engine.queries.tokens import Token, whole_tokens

_DETAIL = "is not supported: DESCRIBE t has the columns, DESCRIBE DETAIL t properties, layout and size"
_HEADS = {
    "show tables like": "SHOW TABLES LIKE is not supported: SELECT name FROM tables() WHERE name LIKE '…'",
    "show columns": "SHOW COLUMNS is not supported: DESCRIBE t, or SELECT * FROM columns('t')",
    "show tblproperties": "SHOW TBLPROPERTIES is not supported: DESCRIBE DETAIL t has the properties",
    "show partitions": "SHOW PARTITIONS is not supported: SELECT * FROM partitions('t')",
    "describe extended": f"DESCRIBE EXTENDED {_DETAIL}",
    "describe formatted": f"DESCRIBE FORMATTED {_DETAIL}",
    "describe table extended": f"DESCRIBE TABLE EXTENDED {_DETAIL}",
    "describe table formatted": f"DESCRIBE TABLE FORMATTED {_DETAIL}",
}
_WITH = {
    "insert": "WITH stands behind the table: INSERT INTO t WITH … SELECT …",
    "update": "WITH … UPDATE is not supported: UPDATE t SET … WHERE id IN (WITH … SELECT …), or MERGE INTO",
    "delete": "WITH … DELETE is not supported: DELETE FROM t WHERE id IN (WITH … SELECT …)",
    "merge": "WITH … MERGE is not supported: MERGE INTO t USING (WITH … SELECT …) AS s ON …",
}
_CLAUSES = ("where", "group", "having", "qualify", "order", "limit")
"""In the order in which they stand."""
_WITH_BY = ("group", "order")
_ORDER = "SELECT … FROM … WHERE … GROUP BY … HAVING … ORDER BY … LIMIT …"
_NAMES_FOLLOW = ("from", "join", "into", "update", "table", ".")
TYPOGRAPHIC = "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u00ab\u00bb\u2039\u203a\u00b4"
BACKTICKS = 'backticks do not quote names here: write a name as it is, or as "a name" if it has spaces'


def instead_of(text: str, position: int | None = None) -> str | None:
    """Return what to write instead of a text that DuckDB's parser has refused; None where nothing is known.

    `position` is the byte of the text at which the parser stopped.
    """
    tokens = whole_tokens(text)
    words = [token.word for token in tokens]
    return _instead_of_form(text, tokens, words) or _instead_of_mark(text, tokens, words, position)


def instead_of_quotes(text: str) -> str | None:
    """Return how to quote instead, for a text with backticks or with quotes of typography outside of quotes."""
    marks = {token.word for token in whole_tokens(text) if token.kind == "sign"}
    if "`" in marks:
        return BACKTICKS
    odd = sorted(marks & set(TYPOGRAPHIC))
    if odd:
        return f"SQL does not know the quotes {' '.join(odd)}: write a text as 'a text', and a name as \"a name\""
    return None


def _instead_of_mark(text: str, tokens: Sequence[Token], words: Sequence[str], position: int | None) -> str | None:
    """Return the form to write instead of a clause, a sign or a number in another dialect."""
    for at, word in enumerate(words):
        if word == "select" and (top := _top(text, tokens, words, at + 1)) is not None:
            return f"TOP {top} is not supported: write LIMIT {top} at the end of the query"
        if word == "limit" and words[at + 2 : at + 3] == [","] and len(tokens) > at + 3:
            skipped, count = _shown(text, tokens[at + 1]), _shown(text, tokens[at + 3])
            return f"LIMIT {skipped}, {count} is not supported: write LIMIT {count} OFFSET {skipped}"
        if word == "except" and at and words[at - 1] == "*" and len(tokens) > at + 1 and words[at + 1] != "select":
            return "* EXCEPT (…) is not supported: write * EXCLUDE (…), with the columns to leave out in parentheses"
        if word == "[" and at and words[at - 1] in _NAMES_FOLLOW and tokens[at + 1].is_name:
            name = text[tokens[at].end : tokens[_closed(words, at)].start].replace('"', "")
            return f'square brackets make a list here: write the name as {name}, or as "{name}" if it has spaces'
        if word == "convert" and words[at + 1 : at + 2] == ["("] and words[at + 3 : at + 4] == ["("]:
            return CONVERT
    return _misplaced(words) or _grouped_number(text, tokens, position) or instead_of_quotes(text)


CONVERT = "CONVERT(type, value) is not supported: write CAST(value AS type), or strftime(value, '%d.%m.%Y') for a form"


def _top(text: str, tokens: Sequence[Token], words: Sequence[str], at: int) -> str | None:
    """Return the number of a TOP behind SELECT; None if there is none."""
    at += words[at : at + 1] in (["distinct"], ["all"])
    if words[at : at + 1] != ["top"]:
        return None
    at += 1 + (words[at + 1 : at + 2] == ["("])
    return _shown(text, tokens[at]) if at < len(tokens) and tokens[at].kind in ("number", "parameter") else None


def _shown(text: str, token: Token) -> str:
    return text[token.start : token.end]


def _closed(words: Sequence[str], at: int) -> int:
    """Return where the bracket closes that opens at a token: in whole tokens, each does."""
    return next(each for each in range(at, len(words)) if words[each] == "]")


def _misplaced(words: Sequence[str]) -> str | None:
    """Return where a clause belongs that stands behind a later one of its SELECT."""
    latest = [0]
    for at, word in enumerate(words):
        if word == "(":
            latest.append(0)
        elif word == ")":
            latest.pop()
        elif word in ("select", "union", "intersect", "except"):
            latest[-1] = 0
        elif word in _CLAUSES and (word not in _WITH_BY or words[at + 1 : at + 2] == ["by"]):
            place = _CLAUSES.index(word)
            if place < latest[-1]:
                return f"{word.upper()} stands before {_CLAUSES[latest[-1]].upper()}: {_ORDER}"
            latest[-1] = place
    return None


def _grouped_number(text: str, tokens: Sequence[Token], position: int | None) -> str | None:
    """Return how to write the number at whose comma the parser stopped."""
    for before, comma, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if comma.word == "," and position == len(text[: comma.start].encode()):
            return number_instead_of(text, before, after)
    return None


def number_instead_of(text: str, before: Token, after: Token) -> str | None:
    """Return how to write a number such as `1.100,50`, by its parts; None unless only a comma separates them."""
    if before.kind != "number" or after.kind != "number" or text[before.end : after.start] != ",":
        return None
    written = text[before.start : after.end]
    whole, _, decimals = written.replace(".", "").partition(",")
    if not (whole + decimals).isdecimal():
        return None
    return f"{written} is not a number in SQL: write {whole}.{decimals}, with a point and without separators"


def _instead_of_form(text: str, tokens: Sequence[Token], words: Sequence[str]) -> str | None:
    """Return the form to write instead of a statement or a version of a table in another dialect."""
    start = " ".join(words[:3]).replace("desc ", "describe ") + " "
    head = next((said for begin, said in _HEADS.items() if start.startswith(begin + " ")), None)
    if head is not None:
        return head
    for at, token in enumerate(tokens):
        if words[at : at + 2] == ["before", "("] and words[at + 3 : at + 4] in (["=>"], [":="]):
            return "BEFORE (…) is not supported: AT (VERSION => n) with the version before, or an earlier moment"
        if (
            words[at : at + 3] in (["version", "as", "of"], ["system_version", "as", "of"])
            and "-" in words[at + 3 :][:1]
        ):
            return (
                "VERSION AS OF takes the number of a version, 0 or more, as FROM history('t') shows them; AT (OFFSET "
                "=> '1 hour ago') goes back in time"
            )
        near = text[token.start : token.start + 12]
        if token.word == "@" and at and tokens[at - 1].end == token.start and near[1:2] in ("v", "V"):
            version = near[2:].split()[0] if near[2:].split() else ""
            if version.isdecimal():
                return f"@v{version} is not supported: t VERSION AS OF {version}"
    return None


def instead_of_with(text: str) -> str | None:
    """Return what to write instead of a WITH that no SELECT follows; None for a SELECT, and where nothing is known."""
    depth = 0
    for token in whole_tokens(text):
        depth += {"(": 1, ")": -1}.get(token.word, 0)
        if not depth and token.word in _WITH:
            return _WITH[token.word]
    return None
