"""Repair rejected events: expressions over an event's own fields give fields of it another value.

An expression sees each field that it names as text: the text of a string, else its JSON. A field that is missing, in
the event and in its `properties`, is null. The value becomes JSON, as DuckDB writes it. Fields that identify an event
cannot be set, so that a repaired event is the event that its sender may deliver again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from alluvia.delta.odd_times import UNREADABLE
from alluvia.delta.schema.names import fold
from alluvia.engine.conditions.sql_assignments import read_value
from alluvia.engine.conditions.sql_condition import known_as
from alluvia.engine.duck.evaluators import Evaluator, current_evaluator
from alluvia.engine.duck.failures import Context, EngineError, translate
from alluvia.engine.duck.literals import quote_name
from alluvia.engine.queries.parse import walk
from alluvia.errors import Invalid
from alluvia.events.ingest.event_time import TIME_FIELDS, odd_time
from alluvia.events.ingest.identity import ID_FIELDS
from alluvia.events.ingest.values import Fields, RawEvent
from alluvia.json_values.jsontext import decode, encode
from alluvia.json_values.time_texts import instant

_IDENTITY = frozenset((*ID_FIELDS, "source"))
_OF_CLOUD_EVENTS = frozenset(("id", "specversion"))
_IDENTIFIES = "the field identifies the event, so a repair cannot change it"
_FAULTS_EXPLAINED = 100
"""Events of a batch whose failures are computed again, one by one, to learn the reason of each."""


class Repair:
    """Expressions by the fields that they set. `unknown`: the fields that they name and no event has had so far.

    `new`: the fields that have been set, and that neither an event had nor the table has as `columns`.
    """

    def __init__(self, sets: Mapping[str, str], fields: Fields, columns: Collection[str]) -> None:
        self._evaluator = current_evaluator()
        self._texts: dict[str, str] = {}
        self._names: dict[str, list[str]] = {}
        self.unknown: set[str] = set()
        self.new: set[str] = set()
        self._had: set[str] = set(columns)
        for name, text in sets.items():
            if name in _IDENTITY or name in fields.id_path[:1]:
                raise Invalid(f"set {name}: {_IDENTIFIES}")
            tree = _about(name, lambda name=name, text=text: read_value(name, text))
            named = (node["column_names"] for node in walk(tree) if node.get("class") == "COLUMN_REF")
            self._names[name] = list({fold(names[0]): names[0] for names in named}.values())
            self._texts[name] = text
            self.unknown.update(self._names[name])
            if len(self._compute(name, _VALUE, _table(self._names[name], [[None] * len(self._names[name])] * 2))) != 2:
                raise Invalid(f"set {name}: an expression cannot use aggregates")

    def apply(self, events: Sequence[RawEvent]) -> tuple[list[RawEvent], dict[int, str]]:
        """Return the events with their new values, and the reasons why some could not be repaired, by their indexes.

        An event with none of the fields that an expression names keeps what it has.
        """
        repaired = list(events)
        reasons: dict[int, str] = {}
        for name in self._texts:
            if any(_has(event.value, name) for event in events):
                self._had.add(name)
            values = self._values(name, events, reasons)
            if values:
                self.new.add(name)
            for at, value in values.items():
                repaired[at] = _with(repaired[at], name, value)
        self.new -= self._had
        return repaired, reasons

    def _values(self, name: str, events: Sequence[RawEvent], reasons: dict[int, str]) -> dict[int, object]:
        """Return an expression's value for events, by their indexes. The reason of one that fails is noted."""
        named = self._names[name]
        texts = [[_text(_field(event.value, each)) for each in named] for event in events]
        chosen = [at for at, of in enumerate(texts) if not named or any(text is not None for text in of)]
        if name in _OF_CLOUD_EVENTS:
            fixed = {at for at in chosen if "specversion" in events[at].value}
            reasons |= dict.fromkeys(fixed, f"set {name}: {_IDENTIFIES}")
            chosen = [at for at in chosen if at not in fixed]
        if not chosen:
            return {}
        rows = _table(named, [texts[at] for at in chosen])
        self.unknown.difference_update(each for each in named if rows[each].null_count < len(rows))
        values: dict[int, object] = {}
        explained = 0
        for row, (at, found) in enumerate(zip(chosen, self._compute(name, _TRIED, rows), strict=True)):
            try:
                if found is not None:
                    values[at] = None if found["v"] is None else decode(found["v"].encode())
                    continue
                explained += 1
                fault = self._fault(name, rows.slice(row, 1)) if explained <= _FAULTS_EXPLAINED else "it fails"
            except Invalid as error:  # such as NaN
                fault = str(error)
            reasons.setdefault(at, f"set {name}: {fault}")
        return values

    def _fault(self, name: str, row: pa.Table) -> str:
        try:
            self._compute(name, _VALUE, row, current_evaluator())  # of its own, since a failure ends its transaction
        except Invalid as error:
            return str(error).removeprefix(f"set {name}: ").partition("\n")[0]
        return "it fails"

    def _compute(self, name: str, form: str, rows: pa.Table, evaluator: Evaluator | None = None) -> list[Any]:
        start, end = form.split("…")
        query = f"{start}{self._texts[name]}{end} AS {quote_name('value')} FROM rows{known_as(rows.column_names)}"
        try:
            return (evaluator or self._evaluator).compute(query, rows).column(0).to_pylist()
        except EngineError as error:
            translated = translate(error.details, Context(self._texts[name], lambda position: position - len(start)))
            raise type(translated)(f"set {name}: {translated}") from None


def _table(names: Sequence[str], texts: Sequence[Sequence[str | None]]) -> pa.Table:
    """Return the fields that an expression names; where it names none, a column that only gives the number of rows."""
    if not names:
        return pa.table({"event": pa.nulls(len(texts), pa.string())})
    return pa.table({name: pa.array([of[at] for of in texts], pa.string()) for at, name in enumerate(names)})


_VALUE = "SELECT to_json((\n…\n))"
_TRIED = "SELECT TRY({'v': to_json((\n…\n))})"


def _about(name: str, read: Any) -> Any:
    try:
        return read()
    except Invalid as error:
        raise type(error)(str(error).replace(f"column {name}:", f"set {name}:", 1)) from None


def _field(event: Mapping[str, object], name: str) -> object:
    """Return an event's field, or else that of the object that it sends as `properties`, as columns are filled."""
    value, inner = event.get(name), event.get("properties")
    return inner.get(name) if value is None and isinstance(inner, dict) else value


def _has(event: Mapping[str, object], name: str) -> bool:
    inner = event.get("properties")
    return name in event or (isinstance(inner, dict) and name in inner)


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else encode(value).decode()


def _with(event: RawEvent, name: str, value: object) -> RawEvent:
    """Return an event with another value of a field, in the place where it has one."""
    inner = event.value.get("properties")
    if event.value.get(name) is None and isinstance(inner, dict) and inner.get(name) is not None:
        fields = {**event.value, "properties": {**inner, name: value}}
    else:
        fields = {**event.value, name: value}
    given = event.given
    if given is not None and name in given.pointed:
        given = replace(given, pointed=tuple(each for each in given.pointed if each != name))
    if given is not None and name in given.unread[:1] and name not in TIME_FIELDS:
        moment = instant(value)
        unread = odd_time(UNREADABLE, name, value)[1:] if moment is None and value not in (None, "") else ()
        given = replace(given, ts_us=None if moment is None else moment[0], unread=unread)
    elif given is not None and name in ("ts", *given.unread[:1]):
        given = replace(given, ts_us=None, unread=())
    if given is not None and name == "event":
        given = replace(given, event=None)
    return event._replace(value=fields, raw=None, given=given)
