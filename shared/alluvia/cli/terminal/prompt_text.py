"""What is typed at the prompt of `alluvia sql`: when it is complete, and what may come next. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from alluvia.engine.duck.literals import quote_name
from alluvia.engine.queries.tokens import Unfinished, tokens_of
from alluvia.errors import Invalid
from alluvia.table_names import name_in_schema, schema_of

DOT_COMMANDS = {
    ".exit": "end; so does Ctrl-D",
    ".help": "show this",
    ".schema": "NAME  show the columns of a table",
    ".tables": "list the tables and views",
    ".timing": "show how long each statement takes, or no longer",
}
_WORDS = (
    "ADD ALTER AND AS ASC BEGIN BETWEEN BY CASE CAST CLUSTER COLUMN COMMIT CONSTRAINT CREATE CROSS DEFAULT DELETE DESC "
    "DESCRIBE DETAIL DISTINCT DROP ELSE END EXCEPT EXISTS EXPLAIN FALSE FILTER FROM FULL GROUP HAVING HISTORY IF ILIKE "
    "IN INNER INSERT INTERSECT INTERVAL INTO IS JOIN LEFT LIKE LIMIT MATCHED MERGE NOT NULL OFFSET ON OPTIMIZE OR "
    "ORDER OUTER OVER PARTITION QUALIFY RENAME RESTORE RIGHT ROLLBACK SELECT SET SHOW SORT SUMMARIZE TABLE TABLES "
    "TBLPROPERTIES THEN TIMESTAMP TO TRUE TRUNCATE UNDROP UNION UPDATE USING VACUUM VALUES VERSION VIEW VIEWS WHEN "
    "WHERE WINDOW WITH"
)
KEYWORDS = _WORDS.split()
_ENDS = ("exit", "quit", ".exit", ".quit", "\\q")
_AS_DOT_COMMANDS = {
    "help": ".help", "?": ".help", "\\?": ".help", "\\h": ".help", "\\timing": ".timing",
    "\\d": ".tables", "\\dt": ".tables", "\\dv": ".tables", "\\l": ".tables",
}  # fmt: skip
"""Names of these commands at other prompts, such as psql's."""
_NAME = re.compile(r"""[^\W\d][\w$]*|"(?:""|[^"])*\"""")
_NAMES = re.compile(rf"(?:{_NAME.pattern})(?:\.(?:{_NAME.pattern}))*")
_LAST = re.compile(rf"""(?:(?P<before>{_NAMES.pattern})\.)?(?P<word>[^\W\d]\w*|"[^"]*)?\Z""")


def ends_prompt(text: str) -> bool:
    """Whether a text asks to leave the prompt."""
    return text.strip().rstrip(";").strip().lower() in _ENDS


def dot_command(text: str) -> str | None:
    """Return the dot command that a text at the prompt is, also under psql's names, such as `\\d`; None for SQL."""
    if text.startswith("."):
        return text
    name, *words = text.rstrip("; \t\r\n").split() or [""]
    if words and name.rstrip("+") in ("\\d", "\\dt", "\\dv"):
        return " ".join((".schema", *words))
    known = _AS_DOT_COMMANDS.get(name.rstrip("+").lower()) if not words else None
    return known or (text if name.startswith("\\") else None)


def is_complete(text: str) -> bool:
    """Whether Enter runs a text: a dot command, or statements of which the last ends with `;` outside quotes."""
    stripped = text.strip()
    if not stripped or dot_command(stripped) is not None or ends_prompt(text):
        return True
    try:
        tokens = tokens_of(text)
    except Unfinished:
        return False
    except Invalid:  # shown when it runs
        return stripped.endswith(";")
    return bool(tokens) and tokens[-1].word == ";"


def completions(text: str, tables: Sequence[str], columns: Callable[[str], Iterable[str]]) -> tuple[str, list[str]]:
    """Return the word before the cursor at the end of a text, and what it may become, in order.

    `columns` tells those of a table, and is only asked about tables that the text names.
    """
    if text.lstrip().startswith("."):
        return _dot_completions(text.lstrip(), tables)
    last = _LAST.search(text)
    before, word = (None, "") if last is None else (last["before"], last["word"] or "")
    if before is not None:
        name = _unquoted(before)
        of = _table_called(name, text, tables)
        held = [*(() if of is None else columns(of)), *_tables_in(name, tables)]
        return word, _starting(word, map(_as_name, held))
    named = {_unquoted(name) for name in _NAMES.findall(text)}
    known = [name for name in tables if name in named]
    own = dict.fromkeys(_as_name(column) for name in known for column in columns(name))
    keywords = [keyword.lower() for keyword in KEYWORDS] if word.islower() else KEYWORDS
    return word, [
        *_starting(word, [*own, *map(_as_table, tables)]),
        *(_starting(word, keywords) if word and not word.startswith('"') else ()),
    ]


def _dot_completions(text: str, tables: Sequence[str]) -> tuple[str, list[str]]:
    command, space, word = text.partition(" ")
    if not space:
        return command, _starting(command, DOT_COMMANDS)
    return word, _starting(word, tables if command == ".schema" else ())


def _table_called(name: str, text: str, tables: Sequence[str]) -> str | None:
    """Return the table that a name stands for: its own, an alias that the text gives it, or that in its schema."""
    if name in tables:
        return name
    pattern = re.compile(rf"""([^\W\d][\w.]*)\s+(?:as\s+)?"?{re.escape(name)}"?(?!\w)""", re.IGNORECASE)
    aliased = next((match[1] for match in pattern.finditer(text) if match[1] in tables), None)
    named = {_unquoted(each) for each in _NAMES.findall(text)}
    return aliased or next((each for each in tables if each in named and name_in_schema(each) == name), None)


def _tables_in(schema: str, tables: Sequence[str]) -> list[str]:
    return [name_in_schema(name) for name in tables if schema_of(name) == schema]


def _starting(word: str, names: Iterable[str]) -> list[str]:
    plain = word.lstrip('"').lower()
    return [name for name in names if name.lstrip('"').lower().startswith(plain) and name != word]


def _as_name(name: str) -> str:
    """Return a name as SQL takes it: quoted where it must be."""
    plain = re.fullmatch(r"[a-z_][a-z0-9_]*", name) and name.upper() not in KEYWORDS
    return name if plain else quote_name(name)


def _as_table(name: str) -> str:
    return ".".join(map(_as_name, name.split(".")))


def _unquoted(name: str) -> str:
    """Return a name, whose parts may be quoted, without the quotes."""
    parts = _NAME.findall(name)
    return ".".join(part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts)
