"""Pipeline: tables that are made of others run when these have changed, or when their schedule says so."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import orjson

from alluvia import Table
from alluvia.api.lake import Lake
from alluvia.errors import AlluviaError, Invalid, TableNotFound
from alluvia.pipelines.derived_tables import DerivedTable, DerivedTables
from alluvia.serverless import warm_lake
from alluvia.serverless.deadlines import in_time
from alluvia.serverless.derived_runs import is_at_limit, run_derived
from alluvia.serverless.events import messages_of
from alluvia.serverless.log_lines import Logger, with_request_id
from alluvia.serverless.rounds import MARGIN_MS, checked, remaining_ms, wanted_tables
from alluvia.serverless.sqs_sender import MessageGroup, send, sqs
from alluvia.serverless.table_messages import Look, message_for
from alluvia.serverless.table_queue import QUEUE_URL, consume
from alluvia.table_names import folder_name

logger = Logger(service="pipeline")
warm_lake.prepare()


@with_request_id(logger)
@in_time
def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    """Bring derived tables up to date: those that are due, or those that `{"tables": [...]}` or messages name.

    A schedule's event queues the tables that are due, each as one message. Without a queue, they run here, one after
    another. A named table, which may be one that others are made of, runs if it is behind, or with `when_due` if it is
    due; then those that are made of it run, or are queued, if they are due. A table that fails stops no other.
    """
    lake, queue_url = warm_lake.lake(), os.environ.get(QUEUE_URL)
    records = messages_of(event) if isinstance(event, dict) and "Records" in event else None

    def asked_for(table: Table, wishes: Sequence[Look]) -> Mapping[str, Any]:  # noqa: ARG001 - all ask for the same
        derived = DerivedTables(lake.catalog)
        it = derived.named(table.name)
        report: dict[str, Any] = {}
        if it is not None and not _is_done(derived, it, records or []) and derived.is_due(it, again=_again(records)):
            report = _run(lake, derived, it, context)
        made = (table.name,) if it is None else it.makes
        if queue_url:
            return {**report, "below_enqueued": _enqueue(lake, derived, derived.made_of(made), queue_url)}
        below = [each for each in derived.from_here(made) if each.name != table.name]
        done = _each(lake, derived, below, (), context)
        _check(done, derived.broken)
        return {**report, **done}

    if records is not None:
        return consume(lake, records, context, asked_for, logger, None)
    given = checked(event, "tables", "when_due")
    named, when_due = given.get("tables"), given.get("when_due", False)
    if not isinstance(when_due, bool):
        raise Invalid("when_due: expected true or false")
    derived = DerivedTables(lake.catalog)
    wanted = [] if named is None else list(map(folder_name, wanted_tables(lake, {"tables": named})))
    if missing := [name for name in wanted if name not in lake]:
        raise TableNotFound(f"there is no table {missing[0]!r}")
    tables = derived.all() if named is None else derived.from_here(wanted)
    for name, reason in derived.broken.items():
        logger.error("a table cannot be kept up to date", extra={"table": name, "reason": reason})
    if queue_url and named is None:
        queued = {"tables_enqueued": _enqueue(lake, derived, tables, queue_url)}
        logger.info("tables enqueued", extra=queued)
        _check({"tables": [], "failed": {}}, derived.broken)
        return queued
    done = _each(lake, derived, tables, [] if when_due else wanted, context)
    logger.info("round done", extra={"tables_left": len(done["left"])})
    _check(done, derived.broken)
    return {"tables": done["tables"], "left": done["left"]}


def _is_done(derived: DerivedTables, table: DerivedTable, records: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a run has looked at a table's sources after all of some messages about it were sent.

    A table is queued again each minute in which it is behind, also while it runs: one run answers all of these.
    """
    looked_ms = derived.looked_ms(table.name)
    sent_ms = [int(each.get("attributes", {}).get("SentTimestamp", "0")) for each in records]
    return looked_ms is not None and bool(sent_ms) and 0 < max(sent_ms) < looked_ms


def _again(records: Sequence[Mapping[str, Any]] | None) -> bool:
    """Whether a run may repeat a failed one: for a message that is delivered again, and for a call by name."""
    received = [int(each.get("attributes", {}).get("ApproximateReceiveCount", "1")) for each in records or []]
    return records is None or max(received, default=1) > 1


def _each(
    lake: Lake, derived: DerivedTables, tables: Iterable[DerivedTable], wanted: Sequence[str], context: object
) -> dict[str, Any]:
    """Run the tables that are due, or wanted and behind, each after those that it reads."""
    reports: list[dict[str, Any]] = []
    left: list[str] = []
    failed: dict[str, str] = {}
    for each in tables:
        if not (derived.is_behind(each) if each.name in wanted else derived.is_due(each)):
            continue
        if reports and remaining_ms(context) <= MARGIN_MS:
            left.append(each.name)
            continue
        try:
            reports.append({"table": each.name, **_run(lake, derived, each, context)})
        except Exception as error:
            logger.exception("a table failed", extra={"table": each.name})
            failed[each.name] = f"{type(error).__name__}: {error}"
            reports.append({"table": each.name, "error": failed[each.name]})
        else:
            logger.info("done", extra=reports[-1])
    return {"tables": reports, "left": left, "failed": failed}


def _check(done: Mapping[str, Any], broken: Mapping[str, str]) -> None:
    """Raise an error that names the tables that failed, so that an alarm sees it."""
    failed = {**done["failed"], **broken}
    if failed:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise AlluviaError(f"{len(failed)} of {len(done['tables']) + len(broken)} tables failed: {reasons}")


def _run(lake: Lake, derived: DerivedTables, table: DerivedTable, context: object) -> dict[str, Any]:
    """Run a table, and record how that ended; a run that Spark does goes on."""
    try:
        report = run_derived(lake, derived, table, context, logger)
    except Exception as error:
        derived.note_run(table, str(error), at_limit=is_at_limit(error))
        raise
    if "handed_over" not in report:
        derived.note_run(table, None)
    return report


def _enqueue(lake: Lake, derived: DerivedTables, tables: Iterable[DerivedTable], queue_url: str) -> int:
    """Queue the tables that are due, and return how many.

    The messages of a table are a group, of which one is delivered at a time. One that is about the same versions as
    another of the last five minutes is dropped by the queue.
    """
    groups: dict[bytes, MessageGroup] = {}
    for each in derived.due(tables):
        message = message_for(each.name)
        group = sha256(each.name.encode()).hexdigest()
        groups[message] = MessageGroup(group, sha256(message + orjson.dumps(derived.versions(each))).hexdigest())
    send(sqs(), queue_url, list(groups), lake.clock, groups)
    return len(groups)
