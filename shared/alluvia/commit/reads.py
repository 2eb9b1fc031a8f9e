"""What a commit has read, as commitInfo records it on a branch, whose commits are judged when it is published. Pure.

`alluviaReads` has `predicates`, of which one holds for every row that the commit rests on, and `files`, the keys of
the files whose rows it has used without changing them. A commit that rests on rows and does not have it may rest on all
rows. Unlike what the log of a lake says of conditions, these have their values: they go with the branch, and erasures
take them out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import orjson

from alluvia.commit.intents import CLAIM
from alluvia.delta.log.replay import State
from alluvia.delta.schema.names import ColumnPath
from alluvia.delta.skipping.predicate import And, Comparison, In, IsNotNull, IsNull, Or, Predicate, Unknown
from alluvia.lazy_dataclasses import dataclass

READS_INFO = "alluviaReads"
FILES_MAX = 1000
VALUES_MAX = 4000
DEPTH_MAX = 30
"""A commit that rests on more files, or on conditions with more values or deeper nesting, may rest on all rows."""
_WRITE: Mapping[type, Callable[[Any], str]] = {
    bool: str,
    int: str,
    float: repr,
    Decimal: str,
    str: str,
    bytes: bytes.hex,
    date: date.isoformat,
    datetime: datetime.isoformat,
}
_READ: Mapping[str, Any] = {
    "bool": lambda text: text == "True",
    "int": int,
    "float": float,
    "Decimal": Decimal,
    "str": str,
    "bytes": bytes.fromhex,
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
}
_PLAIN: Mapping[str, Callable[[ColumnPath], Predicate]] = {"IsNull": IsNull, "IsNotNull": IsNotNull}
_MANY: Mapping[str, Callable[[tuple[Predicate, ...]], Predicate]] = {"And": And, "Or": Or}


@dataclass(frozen=True, slots=True)
class Reads:
    """What a commit rests on: rows for which one of `predicates` holds, and those of `files`, by their keys."""

    predicates: tuple[Predicate, ...]
    files: frozenset[str]


def encode_reads(predicates: Sequence[Predicate] | None, files: frozenset[str]) -> Mapping[str, Any]:
    """Return the fields of commitInfo about rows that were read; none where that is unknown, or too much."""
    if predicates is None or len(files) > FILES_MAX or sum(map(_values, predicates)) > VALUES_MAX:
        return {}
    try:
        encoded = [_encode(each) for each in predicates]
    except KeyError:  # a value of another type, or too deep
        return {}
    return {READS_INFO: {"predicates": encoded, "files": sorted(files)}}


def decode_reads(info: Mapping[str, Any]) -> Reads | None:
    """Return what a commit has read, by its commitInfo; None if that is unknown."""
    try:
        recorded = info[READS_INFO]
        return Reads(tuple(map(_decode, recorded["predicates"])), frozenset(map(str, recorded["files"])))
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return None


def without_reads(data: bytes) -> bytes:
    """Return a commit file that does not say what was read, also not in the claims that it places."""
    if READS_INFO.encode() not in data:
        return data
    return b"".join(_line_without(line) for line in data.splitlines(keepends=True))


def checkpointed(state: State) -> State:
    """Return a state for a checkpoint, which an erasure could not change: its claims do not say what was read."""
    domains = {
        name: replace(domain, configuration=_claim_without(domain.configuration))
        if name.startswith(CLAIM) and READS_INFO in domain.configuration
        else domain
        for name, domain in state.domains.items()
    }
    return state if domains == state.domains else replace(state, domains=domains)


def _claim_without(configuration: str) -> str:
    claim = orjson.loads(configuration)
    claim["commit"] = without_reads(claim["commit"].encode()).decode()
    return orjson.dumps(claim).decode()


def _line_without(line: bytes) -> bytes:
    if READS_INFO.encode() not in line:
        return line
    action = orjson.loads(line)
    if "commitInfo" in action:
        action["commitInfo"].pop(READS_INFO, None)
    elif str(action.get("domainMetadata", {}).get("domain")).startswith(CLAIM):
        action["domainMetadata"]["configuration"] = _claim_without(action["domainMetadata"]["configuration"])
    return orjson.dumps(action) + b"\n"


def _values(predicate: Predicate) -> int:
    if isinstance(predicate, (And, Or)):
        return sum(map(_values, predicate.children))
    return len(predicate.values) if isinstance(predicate, In) else 1


def _encode(predicate: Predicate, depth: int = 0) -> dict[str, Any]:
    kind = type(predicate).__name__
    if depth > DEPTH_MAX:
        raise KeyError(kind)
    if isinstance(predicate, Unknown):
        return {"is": kind}
    if isinstance(predicate, (And, Or)):
        return {"is": kind, "children": [_encode(child, depth + 1) for child in predicate.children]}
    body: dict[str, Any] = {"is": kind, "column": list(predicate.column)}
    if isinstance(predicate, Comparison):
        body |= {"op": predicate.op, "value": _value(predicate.value)}
    elif isinstance(predicate, In):
        body["values"] = [_value(each) for each in predicate.values]
    return body


def _value(value: object) -> list[str]:
    kind = type(value)
    return [kind.__name__, _WRITE[kind](value)]


def _decode(body: Mapping[str, Any]) -> Predicate:
    kind = body["is"]
    if kind == "Unknown":
        return Unknown()
    if kind in _MANY:
        return _MANY[kind](tuple(_decode(child) for child in body["children"]))
    column = tuple(map(str, body["column"]))
    if kind in _PLAIN:
        return _PLAIN[kind](column)
    if kind == "In":
        return In(column, tuple(_READ[name](text) for name, text in body["values"]))
    if kind != "Comparison":
        raise ValueError(kind)
    name, text = body["value"]
    return Comparison(column, body["op"], _READ[name](text))
