"""The declaration of one table of a pipeline, and the form in which the table keeps it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any

import orjson

from alluvia.errors import Corrupt, Invalid
from alluvia.lazy_dataclasses import dataclass

APPEND, KEYED, AGGREGATE, FULL = KINDS = ("append", "keyed", "aggregate", "full")
WARN, DROP, QUARANTINE, FAIL = ACTIONS = ("warn", "drop", "quarantine", "fail")
QUARANTINE_SUFFIX = "_quarantine"


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition that rows of a table are to meet, and what is done with a row for which it is not true."""

    name: str
    condition: str
    action: str = WARN


@dataclass(frozen=True, slots=True)
class Sequencing:
    """How the rows of the query, which are changes of keyed rows, become the table's rows.

    The change with the greatest value of `by` wins. `delete_when` is a condition on changes that delete their key; it
    may use all columns of the query. `scd` is 1 for the newest row of each key, and 2 for all with `valid_from`,
    `valid_to` and `is_current`.
    """

    by: str
    delete_when: str | None = None
    scd: int = 1


@dataclass(frozen=True, slots=True)
class Declaration:
    """A table that a query makes. `place` is where it is declared, as errors name it: a file and a line.

    `kind` is None where it follows from the query. `every_seconds` is how often it is to run, and `on_change` whether
    commits of its sources start it; neither for a table that runs only when it is asked to.
    """

    target: str
    query: str
    key: tuple[str, ...] = ()
    sequencing: Sequencing | None = None
    kind: str | None = None
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    expectations: tuple[Expectation, ...] = ()
    every_seconds: int | None = None
    on_change: bool = False
    place: str = ""

    def __post_init__(self) -> None:
        names = [each.name for each in self.expectations]
        for name in names:
            if names.count(name) > 1:
                raise self.wrong(f"two expectations are called {name}: give one another name")
        if self.kind not in (None, *KINDS):
            raise self.wrong(f"the kind must be one of {', '.join(KINDS)}, not {self.kind}")
        if self.sequencing is not None and not self.key:
            raise self.wrong("SEQUENCE BY needs KEY (…), the columns that tell rows apart")
        if self.sequencing is not None and self.sequencing.scd not in (1, 2):
            raise self.wrong(f"SCD TYPE must be 1 or 2, not {self.sequencing.scd}")
        if self.key and self.kind not in (None, KEYED, FULL):
            raise self.wrong(f"KEY (…) makes the table keyed, which KIND {str(self.kind).upper()} contradicts")
        if self.sort_by and self.cluster_by:
            raise self.wrong("rows can have one order only: leave SORT BY or CLUSTER BY out")

    @property
    def quarantine(self) -> str | None:
        """Return the name of the table of rows that failed; None where no expectation sends rows there."""
        sends = any(each.action == QUARANTINE for each in self.expectations)
        return self.target + QUARANTINE_SUFFIX if sends else None

    def wrong(self, reason: str) -> Invalid:
        """Return an error about the declaration, with its place."""
        place = f"{self.place}: " if self.place else ""
        return Invalid(f"{place}table {self.target.replace('/', '.')}: {reason}")

    def to_json(self) -> dict[str, Any]:
        """Return it for the table's property, without its place."""
        return {name: value for name, value in asdict(self).items() if name != "place"}


def declaration_of(recorded: Mapping[str, Any]) -> Declaration:
    """Return the declaration in a table's property. Raises `Corrupt`."""
    try:
        given = dict(recorded)
        given["expectations"] = tuple(Expectation(**each) for each in given["expectations"])
        given |= {name: tuple(given[name]) for name in ("key", "partition_by", "sort_by", "cluster_by")}
        if given["sequencing"] is not None:
            given["sequencing"] = Sequencing(**given["sequencing"])
        return Declaration(**given)
    except (KeyError, TypeError, ValueError, Invalid) as error:
        msg = f"the declaration of a pipeline's table cannot be read: only its runs may set it ({error})"
        raise Corrupt(msg) from error


def to_text(value: Mapping[str, Any]) -> str:
    """Return JSON with keys in a fixed order, so that equal values have equal texts."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
