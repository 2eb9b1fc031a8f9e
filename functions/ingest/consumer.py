"""Events from the queue into their tables: one commit per table for a whole batch of messages."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from alluvia.errors import Invalid
from alluvia.events.ingest.messages import unpack
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.serverless.log_lines import Logger

from .settings import SERVICE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alluvia import Lake
    from alluvia.events.ingest.values import RawEvent

logger = Logger(service=SERVICE, child=True)


def consume(
    lake: Lake, records: Sequence[Mapping[str, Any]], *, create: bool, tables_max: int | None = None
) -> dict[str, list[dict[str, str]]]:
    """Commit the events of SQS records; return the messages that failed, as `ReportBatchItemFailures` wants them.

    A message that cannot be read fails alone, a table that fails takes only its own messages along, and of events each
    is judged by itself. What is delivered again makes no second row, since ids were fixed before the queue.
    """
    failed: list[str] = []
    events: defaultdict[str, list[RawEvent]] = defaultdict(list)
    messages: defaultdict[str, list[str]] = defaultdict(list)
    for record in records:
        try:
            message = unpack(record["body"])
        except Invalid as error:
            logger.warning("a message cannot be read", extra={"message_id": record["messageId"], "reason": str(error)})
            failed.append(record["messageId"])
            continue
        events[message.table].extend(message.events)
        messages[message.table].append(record["messageId"])
    for table, pending in events.items():
        try:
            answer = ingest_batch(
                lake, table, pending, arrival_us=lake.clock.now_us(), create=create, tables_max=tables_max
            )
        except Exception:
            logger.exception("a table's events failed", extra={"table": table, "messages": len(messages[table])})
            failed += messages[table]
            continue
        if not answer.kept:  # these were accepted once, so they may not vanish
            logger.error("no table can keep the rejects", extra={"table": table, "rejected": answer.rejected})
            failed += messages[table]
            continue
        logger.info("committed", extra={"table": table, "messages": len(messages[table]), **answer.counts()})
    if failed:
        logger.warning("messages will come again", extra={"failed_messages": len(failed), "messages": len(records)})
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}
