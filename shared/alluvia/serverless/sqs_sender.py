"""Messages into SQS."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from alluvia.errors import Unavailable
from alluvia.events.ingest.messages import batches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import SendMessageBatchRequestEntryTypeDef

    from alluvia.clock import Clock

_TRIES = 5


class MessageGroup(NamedTuple):
    """The group of a message, of which one is worked on at a time, and its id: the same one within 5 minutes is lost.

    Both are up to 128 letters and digits.
    """

    name: str
    message_id: str


@cache
def sqs() -> SQSClient:
    """Return this process's client of SQS."""
    import boto3
    from botocore.config import Config

    config = Config(connect_timeout=2, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 3})
    return boto3.client("sqs", config=config)


def send(
    client: SQSClient,
    queue_url: str,
    messages: Sequence[bytes],
    clock: Clock,
    groups: Mapping[bytes, MessageGroup] = MappingProxyType({}),
) -> None:
    """Send all messages. Messages of a batch that SQS does not confirm are sent again, with growing pauses.

    `groups` are those of the messages to a FIFO queue.
    Raises Unavailable if some were still refused: the others are in the queue, so sending all again is safe only
    because a message makes the same rows however often it comes.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    for batch in batches(messages):
        entries = [_entry(str(number), message, groups.get(message)) for number, message in enumerate(batch)]
        for tries in range(1, _TRIES + 1):
            try:
                answer = client.send_message_batch(QueueUrl=queue_url, Entries=entries)
            except (BotoCoreError, ClientError) as error:
                raise Unavailable(f"the queue did not take the messages: {error}") from error
            taken = {each["Id"] for each in answer.get("Successful", [])}
            entries = [entry for entry in entries if entry["Id"] not in taken]
            if not entries:
                break
            failed = answer.get("Failed", [])
            if tries == _TRIES or any(each["SenderFault"] for each in failed):
                code = failed[0]["Code"] if failed else "its answer does not name them"
                raise Unavailable(f"the queue refused {len(entries)} messages: {code}")
            clock.sleep(0.05 * 2**tries * (0.5 + clock.uniform()))


def _entry(entry_id: str, message: bytes, group: MessageGroup | None) -> SendMessageBatchRequestEntryTypeDef:
    entry: SendMessageBatchRequestEntryTypeDef = {"Id": entry_id, "MessageBody": message.decode()}
    if group is not None:
        entry |= {"MessageGroupId": group.name, "MessageDeduplicationId": group.message_id}
    return entry
