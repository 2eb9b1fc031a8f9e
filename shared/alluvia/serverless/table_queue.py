"""Tables that change or are due, by way of a queue: messages in, work on each table once, what is left back in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from alluvia.api.lake import Lake, Table
from alluvia.errors import AlluviaError, Invalid
from alluvia.serverless.log_lines import Logger
from alluvia.serverless.rounds import work_on
from alluvia.serverless.sqs_sender import send, sqs
from alluvia.serverless.table_messages import Look, looks, message_for, superseded

QUEUE_URL = "ALLUVIA_TABLES_QUEUE_URL"
"""The queue of a function that works on tables; without it, a run works on all tables itself."""


def fan_out(lake: Lake, queue_url: str, logger: Logger, *, dropped: bool = False) -> dict[str, Any]:
    """Put one message for each table of a lake, and its rejects, into a queue; with `dropped` for dropped ones too.

    Looks at no table: one LIST per 1,000 tables, and one request to SQS per ten. Raises `Unavailable` if some were not
    sent; sending all again is safe.
    """
    names = lake.tables(dropped=dropped)
    send(sqs(), queue_url, [message_for(name, swept=True) for name in names], lake.clock)
    logger.info("tables enqueued", extra={"tables_enqueued": len(names)})
    return {"tables_enqueued": len(names)}


def consume(
    lake: Lake,
    records: Sequence[Mapping[str, Any]],
    context: object,
    work: Callable[[Table, Sequence[Look]], Mapping[str, Any]],
    logger: Logger,
    queue_url: str | None,
) -> dict[str, Any]:
    """Work once on each table that SQS messages are about; return those that failed, as `ReportBatchItemFailures` says.

    `work` gets the messages that ask for the table.
    A message that cannot be read fails alone, and so does each table. Messages about tables that are gone are done. For
    a table that time ran out for, or that `work` did not finish, another message is sent; without a
    queue its messages fail, and so come again.
    """
    failed: set[str] = set()
    messages: defaultdict[str, set[str]] = defaultdict(set)
    wanted: defaultdict[str, list[Look]] = defaultdict(list)
    for record in records:
        message_id = record["messageId"]
        try:
            for look in looks(record["body"], lake.uri):
                messages[look.table].add(message_id)
                wanted[look.table].append(look)
        except Invalid as error:
            logger.warning("a message cannot be read", extra={"message_id": message_id, "reason": str(error)})
            failed.add(message_id)

    def unless_superseded(table: Table) -> Mapping[str, Any]:
        wishes = wanted[table.name]
        notified = [look.version for look in wishes if look.version is not None]
        if notified:
            lake.catalog.handle(table.name).log.expect(max(notified))
        if len(notified) == len(wishes):
            newest = table.version
            if all(superseded(version, newest) for version in notified):
                return {"superseded_at": newest}
        return work(table, wishes)

    done = work_on(lake, list(messages), context, unless_superseded, logger)
    again = set(done.failed) | _not_sent_again(lake, done.left, queue_url, logger)
    failed.update(*(messages[table] for table in again))
    extra = {"messages": len(records), "tables": len(messages), "tables_left": len(done.left)}
    if failed:
        logger.warning("messages will come again", extra={"failed_messages": len(failed), **extra})
    else:
        logger.info("messages done", extra=extra)
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in sorted(failed)]}


def _not_sent_again(lake: Lake, left: Iterable[str], queue_url: str | None, logger: Logger) -> set[str]:
    """Send a message for each table that something is left of; return those for which that was not possible."""
    tables = list(left)
    if not tables or queue_url is None:
        return set(tables)
    try:
        send(sqs(), queue_url, [message_for(table) for table in tables], lake.clock)
    except AlluviaError as error:
        logger.warning("what is left was not sent again", extra={"tables": tables, "reason": str(error)})
        return set(tables)
    return set()
