"""Do one piece of work for every table of a lake, for the scheduled functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from alluvia.api.lake import Lake, Table
from alluvia.errors import AlluviaError, Invalid, ReadOnly, TableNotFound
from alluvia.lazy_dataclasses import dataclass
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
    request = fields_of(event, '{"tables": ["clicks"]}, or {} for all tables', fields, schedule)
    if request.get("detail"):
        raise Invalid(f"detail is not supported: have the rule send {', '.join(fields)} as its input")
    return request


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """The outcome for tables, by name: reports of those that were worked on or failed, and why they failed.

    `left` are those that time ran out for, or that `work` did not finish; `absent` those that are not
    there.
    """

    reports: list[dict[str, Any]]
    failed: dict[str, str]
    left: list[str]
    absent: list[str]


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

    Returns `{"tables": [report of each], "left": [names]}`. One table's failure stops no other; an `AlluviaError` at
    the end names those that failed, so that an alarm sees it.
    """
    done = work_on(lake, wanted_tables(lake, event, dropped=dropped), context, work, logger)
    failed = dict(done.failed)
    if event.get("tables") is not None:  # else a folder of something else, or dropped a moment ago
        failed |= {name: f"TableNotFound: there is no table {name!r}" for name in done.absent}
    if failed:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        tables = len(done.reports) + len(failed) - len(done.failed)
        raise AlluviaError(f"{len(failed)} of {tables} tables failed: {reasons}")
    return {"tables": done.reports, "left": done.left}


def work_on(
    lake: Lake,
    names: Sequence[str],
    context: object,
    work: Callable[[Table], Mapping[str, Any]],
    logger: Logger,
) -> RoundOutcome:
    """Work on tables, several at once, since most of it is looking for news. One table's failure stops no other.

    Begins no table but the first with less than `MARGIN_MS` left.
    """
    failed: dict[str, str] = {}
    absent: list[str] = []

    def one(at: int, name: str) -> dict[str, Any] | None:
        if at and remaining_ms(context) <= MARGIN_MS:
            return None
        try:
            report = {"table": name, **work(lake.table(name))}
        except ReadOnly as error:
            logger.info("left to another lake", extra={"table": name})
            return {"table": name, "skipped": str(error)}
        except TableNotFound:
            logger.info("there is no such table", extra={"table": name})
            absent.append(name)
            return {}
        except Exception as error:
            logger.exception("a table failed", extra={"table": name})
            failed[name] = f"{type(error).__name__}: {error}"
            return {"table": name, "error": failed[name]}
        logger.info("done", extra=report)
        return report

    own = [copy_context() for _ in names]  # so that log lines keep the ids of their request
    with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
        done = pool.map(lambda context, *task: context.run(one, *task), own, range(len(names)), names)
        reports = list(zip(names, done, strict=True))
    left = [name for name, report in reports if report is None or report.get("left")]
    return RoundOutcome([report for _, report in reports if report], failed, left, absent)


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
