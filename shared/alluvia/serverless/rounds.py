"""Do one piece of work for every table of a lake, for the scheduled functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from alluvia.errors import AlluviaError, Invalid, TableNotFound
from alluvia.lake import Lake, Table
from alluvia.serverless.events import fields_of
from alluvia.serverless.log_lines import Logger

SCHEDULE_FIELDS = ("version", "id", "detail-type", "source", "account", "time", "region", "resources", "detail")
"""The fields of an event of EventBridge's schedule."""
TABLES_AT_ONCE = 16
MARGIN_MS = 60_000
"""With less time than this left, no further table is begun: the next run does it."""


def checked(event: object, *fields: str) -> dict[str, Any]:
    """Return an event that may hold these fields, and what a schedule sends. Raises `Invalid` for others."""
    schedule = SCHEDULE_FIELDS if isinstance(event, dict) and "detail-type" in event else ()
    found = fields_of(event, '{"tables": ["clicks"]}, or {} for all tables', fields, schedule)
    if found.get("detail"):
        raise Invalid(f"detail is not supported: have the rule send {', '.join(fields)} as its input")
    return found


def every_table(
    lake: Lake,
    event: Mapping[str, Any],
    context: object,
    work: Callable[[Table], Mapping[str, Any]],
    logger: Logger,
    *,
    dropped: bool = False,
) -> dict[str, Any]:
    """Work on the tables that `{"tables": [...]}` names, or on all tables and their rejects, `dropped` ones too.

    Several tables at once, since most of a round is looking for news. Returns `{"tables": [report of each], "left":
    [those that there was no time for, or that report work `left` themselves]}`. One table's failure stops no other; an
    `AlluviaError` at the end names those that failed, so that an alarm sees it.
    """
    wanted = wanted_tables(lake, event, dropped=dropped)
    failed: dict[str, str] = {}

    def one(at: int, name: str) -> dict[str, Any] | None:
        if at and remaining_ms(context) <= MARGIN_MS:
            return None
        try:
            report = {"table": name, **work(lake.table(name))}
        except Exception as error:
            if isinstance(error, TableNotFound) and event.get("tables") is None:
                return {}  # a folder of something else, or dropped a moment ago
            logger.exception("a table failed", extra={"table": name})
            failed[name] = f"{type(error).__name__}: {error}"
            return {"table": name, "error": failed[name]}
        logger.info("done", extra=report)
        return report

    own = [copy_context() for _ in wanted]  # so that log lines keep the ids of their request
    with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
        done = pool.map(lambda context, *task: context.run(one, *task), own, range(len(wanted)), wanted)
        found = list(zip(wanted, done, strict=True))
    reports = [report for _, report in found if report]
    if failed:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise AlluviaError(f"{len(failed)} of {len(reports)} tables failed: {reasons}")
    return {"tables": reports, "left": [name for name, report in found if report is None or report.get("left")]}


def wanted_tables(lake: Lake, event: Mapping[str, Any], *, dropped: bool = False) -> list[str]:
    """Return the tables to work on, in an order that starts elsewhere each time, so that none always comes last."""
    wanted = event.get("tables")
    if wanted is None:
        tables = lake.tables(rejects=True, dropped=dropped)
        start = int(lake.clock.uniform() * len(tables))
        return tables[start:] + tables[:start]
    if not isinstance(wanted, list) or not all(isinstance(name, str) for name in wanted):
        raise Invalid('tables: expected a list of table names, such as {"tables": ["clicks"]}')
    return list(wanted)


def remaining_ms(context: object) -> float:
    """Return how long this invocation may still take; without end outside Lambda."""
    remaining = getattr(context, "get_remaining_time_in_millis", None)
    return float("inf") if remaining is None else float(remaining())
