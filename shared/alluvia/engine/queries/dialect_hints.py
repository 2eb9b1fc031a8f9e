"""What to write instead of a form of another system that DuckDB's parser does not take. Pure."""

from __future__ import annotations

from alluvia.engine.queries.tokens import whole_tokens

_DETAIL = "is not supported: DESCRIBE t has the columns, DESCRIBE DETAIL t properties, layout and size"
_HEADS = {
    "show tables like": "SHOW TABLES LIKE is not supported: SELECT name FROM tables() WHERE name LIKE '…'",
    "show tables in": "SHOW TABLES IN is not supported: a lake has one schema, so SHOW TABLES shows all",
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


def instead_of(text: str) -> str | None:
    """Return what to write instead of a text that DuckDB's parser has refused; None where nothing is known."""
    tokens = whole_tokens(text)
    words = [token.word for token in tokens]
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
