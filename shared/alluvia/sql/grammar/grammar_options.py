"""Options of statements that create and alter: partitions, properties and comments, from their tokens. Pure."""

from __future__ import annotations

from alluvia.engine.queries.tokens import tokens_of
from alluvia.errors import Invalid
from alluvia.sql.grammar.cursor import Cursor


def read_comment_text(cursor: Cursor) -> str:
    """Take the text of a comment."""
    return cursor.string("the comment")


def read_partitioning(cursor: Cursor) -> tuple[str, ...]:
    """Read what PARTITION BY names: columns, and functions of columns, such as day(ts)."""
    cursor.expect("(")
    names: list[str] = []
    while not names or cursor.accept(","):
        name = cursor.identifier("the name of a column")
        if cursor.word() == "(":
            name += f"({_without_quotes(cursor.brackets('a column').text)})"
        names.append(name)
    cursor.expect(")")
    return tuple(names)


def _without_quotes(text: str) -> str:
    """Return the arguments of a transform with names as they are, which `parse_spec` reads."""
    for token in reversed(tokens_of(text)):
        if token.kind == "quoted":
            name = text[token.start + 1 : token.end - 1].replace('""', '"')
            text = text[: token.start] + name + text[token.end :]
    return text


def read_properties(cursor: Cursor, *, own: bool = True) -> dict[str, str]:
    """Read (name = value, …). Unless properties of one's `own` are allowed, only those of Alluvia and Delta are."""
    properties: dict[str, str] = {}
    cursor.expect("(")
    while not properties or cursor.accept(","):
        name = read_property(cursor)
        if not own and not name.startswith(("alluvia.", "delta.")):
            raise Invalid(
                f"WITH ({name} = …) is not an option of tables: docs/TABLES.md lists them; TBLPROPERTIES also takes "
                "properties of your own"
            )
        cursor.expect("=")
        if name in properties:
            raise Invalid(f"property {name} occurs twice")
        properties[name] = _property_value(cursor)
    cursor.expect(")")
    return properties


def read_property(cursor: Cursor) -> str:
    """Read the name of a property, in quotes or as words with dots."""
    if cursor.word() == "" and not cursor.ended:
        return cursor.string("the name of a property")
    parts = [cursor.identifier("the name of a property")]
    while cursor.accept("."):
        parts.append(cursor.identifier("the name of a property"))
    return ".".join(parts)


def _property_value(cursor: Cursor) -> str:
    if cursor.word() in ("true", "false"):
        return cursor.identifier("a value").lower()
    first = cursor.at
    if cursor.word() == "" and not cursor.ended:
        text = cursor.slice(first, first + 1).text
        if text.isdigit():
            return str(cursor.number("a value"))
    return cursor.string("the value of a property")
