"""Compute a relation for the library itself, in a query's process and as confined as a query is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TypeVar

import pyarrow as pa

from alluvia.engine.duck.failures import UnreadableFile
from alluvia.engine.queries.rewrite import VIEW_SCHEMA
from alluvia.operations.reading.relations import Evaluate, Inputs, Relation
from alluvia.processes.pool import Watch
from alluvia.query.limits import QueryLimits
from alluvia.query.process.session import Session
from alluvia.store import Store

T = TypeVar("T")


def evaluation(
    store: Store, limits: QueryLimits | None = None, check: Callable[[Inputs], None] = lambda _: None
) -> Evaluate:
    """Return what computes relations over a store's files, each within the limits, after a check of what it reads."""

    allowed = limits or QueryLimits()

    def evaluate(relation: Relation, take: Callable[[pa.Schema, Iterator[pa.RecordBatch]], T]) -> T:
        check(relation.inputs)
        watch = Watch(allowed.deadline(), allowed.held_bytes_max, allowed.cancelled)
        unreadable: set[str | None] = set()
        while True:
            session = Session(store, allowed, watch, lambda path: None in unreadable or path in unreadable)
            with closing(session):
                try:
                    session.begin()
                    session.open(relation.inputs, relation.views)
                    text = f"FROM {VIEW_SCHEMA}.{relation.name}"
                    return take(*session.run(text, "", lambda position: position))
                except UnreadableFile as error:
                    if None in unreadable or error.path in unreadable:
                        raise error.otherwise from None
                    unreadable.add(error.path)

    return evaluate
