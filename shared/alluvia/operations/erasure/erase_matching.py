"""Which rows are to be erased, as one version of the table has them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import field
from functools import cached_property
from urllib.parse import quote, quote_plus

import pyarrow as pa

from alluvia.delta.data_files.scan import Scan
from alluvia.delta.log.actions import AddFile
from alluvia.delta.schema.former_names import former_names
from alluvia.delta.schema.names import fold
from alluvia.delta.skipping.predicate import Predicate, Unknown
from alluvia.delta.snapshot import Snapshot
from alluvia.delta.statistics.typed import parse_statistics
from alluvia.engine.conditions.condition import condition, expression_of, words_in
from alluvia.engine.queries.parse import Node, is_constant, walk
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.erasure.erase_judging import Judge, Judged
from alluvia.operations.erasure.erase_places import PROPERTIES, FieldPlaces, places
from alluvia.table_names import REJECTS

_OF_JSON = frozenset({"->>", "json_extract_string"})
_WITH_KEY = _OF_JSON | {"->", "json_extract", "json_value", "struct_extract", "array_extract"}
_CODE = re.compile(r"\\\\u[0-9a-f]{4}|%[0-9A-F]{2}")
"""The code of a character in JSON or a URL, in the expression for a form."""
_BEFORE = r"(?:(?<!\w)|(?<=\\[bfnrt])|(?<=\\u[0-9a-fA-F]{4})|(?<=%[0-9a-fA-F]{2}))"
"""What stands before a word: no letter or digit, unless it ends the code of another character in JSON or a URL."""


def words_of(where: str) -> frozenset[str]:
    """Return the texts and numbers in a condition, as text. Raises `Invalid` for a text that is not a condition."""
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
    return _CODE.sub(lambda code: f"(?i:{code[0]})", re.escape(form))


def names_with(table: str, snapshot: Snapshot, words: Collection[str]) -> Iterator[str]:
    """Say which names of a table and its columns, former ones on record included, have one of some words."""
    pattern = word_pattern(words)
    if pattern is None or table.endswith(f"/{REJECTS}"):  # named like its table, with columns of its own
        return
    columns = set(_names(snapshot.schema))
    if pattern.search(table):
        yield "the name of the table contains a value of the condition: rename it or drop it"
    for name in sorted(filter(pattern.search, columns)):
        yield f"the name of column {name!r} contains a value of the condition: rename it or drop it"
    on_record = {each for name, names in former_names(snapshot.properties).items() for each in (name, *names)}
    for name in sorted(filter(pattern.search, on_record - columns)):
        yield f"the former name {name!r} of a column contains a value of the condition: copy the rows to a new table"


def _names(fields: Iterable[pa.Field], above: str = "") -> Iterator[str]:
    """Yield the names of columns and, in structs, of their fields, as paths."""
    for each in fields:
        yield above + each.name
        if pa.types.is_struct(each.type):
            yield from _names(each.type, f"{above}{each.name}.")


Judging = Callable[[pa.RecordBatch, bool], Judged]
Bounded = Callable[[pa.RecordBatch], pa.BooleanArray]


@dataclass(frozen=True)
class Matching:
    """Rows to erase of a snapshot's table.

    `judge` says for each row of a batch with `columns`, and others that a file has, whether it is one; if it is to be
    strict, it raises `Invalid` where the condition fails on a value. `predicate` holds for every such row of which the
    table's columns say that it is one, `complement` for every other one. `words` are the texts and numbers in the
    condition. `bounded` says of rows of which some of `columns` are known, the others being null, whether they match;
    null where that is unclear. `places` are where its fields are, None where only the columns count. `seen` gets those
    that rows have outside of columns. `name_words` are those of the words that are looked for in names and in
    what people wrote into the metadata.
    """

    snapshot: Snapshot
    columns: tuple[str, ...]
    judge: Judging
    bounded: Bounded
    words: frozenset[str]
    predicate: Predicate
    complement: Predicate
    places: FieldPlaces | None = None
    seen: set[str] = field(default_factory=set)
    name_words: frozenset[str] = frozenset()

    @property
    def unknown(self) -> frozenset[str]:
        """Return the fields that neither a column has nor, so far, any row."""
        absent = () if self.places is None else self.places.absent
        return frozenset(field.name for field in absent if field.name not in self.seen)

    def looked_for(self, names: Collection[str]) -> Sequence[str]:
        """Return which columns of a file, by its own names, are looked at although the table has none such."""
        return () if self.places is None else list(self.places.looked_for(names))

    def can_match(self, file: AddFile) -> bool:
        """Whether a file of the table, also one of another version, can hold such rows."""
        return self.can_hide(file) or self._scan.can_match(file)

    def can_match_now(self, file: AddFile) -> bool:
        """Whether a file of the snapshot can hold such rows."""
        lacks = self.places is not None and self.places.absent
        return self.can_hide(file) or (not lacks and self._scan.can_match(file))

    def can_hide(self, file: AddFile) -> bool:
        """Whether a file can have a field of the condition outside of its column."""
        if self.places is None or self.places.only_columns:
            return False
        if self.places.lost_here or not (self.places.properties or self.places.keys):
            return self.places.lost_here
        statistics = parse_statistics(file.stats, exact=True)
        nulls, rows = statistics.get("nullCount") or {}, statistics.get("numRecords")
        stored = self.snapshot.physical_name(PROPERTIES)
        return rows is None or not isinstance(nulls, dict) or nulls.get(stored) != rows

    @property
    def hides(self) -> bool:
        """Whether any file can have a field of the condition outside of its column."""
        return self.places is not None and not self.places.only_columns

    @cached_property
    def _scan(self) -> Scan:
        return Scan(self.snapshot, self.predicate)


Find = Callable[[Snapshot], Matching]


def matching_rows(where: str, *, anywhere: bool = False) -> Find:
    """Return what an SQL condition says of a table's rows; it raises `Invalid` if the text is not a condition.

    It is one on the table's columns, by the names that they have or have had, and on fields that its `properties` may
    hold. With `anywhere` it may name fields that the table has no place for now: its files may have had one.
    """
    known: list[tuple[pa.Schema, dict[str, str], tuple[FieldPlaces, Judge]]] = []

    def find(snapshot: Snapshot) -> Matching:
        now = (snapshot.schema, dict(snapshot.properties))
        if not known or not known[-1][0].equals(now[0], check_metadata=True) or known[-1][1] != now[1]:
            where_to_look = places(where, snapshot)
            if not anywhere:
                _check_known(where, snapshot, where_to_look)
            known.append((*now, (where_to_look, Judge(where, snapshot, where_to_look))))
        return _matching(where, snapshot, *known[-1][2])

    return find


def _check_known(where: str, snapshot: Snapshot, sought: FieldPlaces) -> None:
    """Raise `Invalid` for a condition that cannot be one on the table's rows, as it is for any condition on them."""
    lost = {name for names in sought.lost.values() for name in names}
    if not sought.properties and any(field.name not in lost for field in sought.absent):
        condition(where, snapshot.schema)


def _matching(where: str, snapshot: Snapshot, where_to_look: FieldPlaces, judge: Judge) -> Matching:
    named = tuple(dict.fromkeys(field.column for field in where_to_look.fields if field.column is not None))
    present = {fold(name) for name in snapshot.schema.names}
    predicate: Predicate = Unknown()
    complement: Predicate = Unknown()
    if all(field.column is not None and field.name in present for field in where_to_look.fields):
        parsed = condition(where, snapshot.schema)
        predicate = parsed.predicate
        if where_to_look.only_columns:
            complement = parsed.complement
    looked_at = [*named, *where_to_look.keys.values()]
    if where_to_look.properties or where_to_look.keys:
        looked_at.append(PROPERTIES)
    columns = tuple(name for name in snapshot.schema.names if name in looked_at) or tuple(snapshot.schema.names[:1])
    return Matching(
        snapshot,
        columns,
        lambda batch, strict: judge.judged(batch, strict=strict),
        judge.bounded,
        words_of(where),
        predicate,
        complement,
        where_to_look,
        judge.seen,
        name_words_of(where),
    )


def matching_texts(snapshot: Snapshot, columns: tuple[str, ...], judge: Judging, where: str) -> Matching:
    """Return a matching that nothing is known of but which rows it is about."""
    words, named = words_of(where), name_words_of(where)
    return Matching(
        snapshot,
        columns,
        judge,
        lambda batch: judge(batch, False).mask,
        words,
        Unknown(),
        Unknown(),
        name_words=named,
    )
