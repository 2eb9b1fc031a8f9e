"""Queue messages that have a function look at a table: S3's notifications of commits, and our own. Pure.

S3 notifies of the commits whose names end in `0.json`, every tenth of a table. Our own messages name a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote_plus

import orjson

from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.table_names import REJECTS, TABLE_OR_REJECTS

NOTIFIED_EVERY = 10
"""One commit in this many is notified: those whose version ends in 0."""
_COMMIT = re.compile(
    rf"(?:(?P<folder>.*)/)??(?P<table>{TABLE_OR_REJECTS.pattern})/_delta_log/(?P<version>\d{{20}})\.json"
)
_S3 = re.compile(r"s3[an]?://(?P<bucket>[^/]+)/?(?P<prefix>.*)")
_TEST = "s3:TestEvent"


@dataclass(frozen=True, slots=True)
class Look:
    """A wish to look at a table.

    `version` is that of the commit that S3 notified of; None for another message. `swept` tables are looked at with
    all others, whether they have changed or not.
    """

    table: str
    version: int | None = None
    swept: bool = False


def looks(body: str, lake_uri: str) -> list[Look]:
    """Return what a message wants to be looked at in the lake at a URI: nothing for a test, or for other objects.

    A lake that is not on S3 takes the notifications of any bucket, so that samples run anywhere. Raises `Invalid` for
    a message of another shape, and for a notification of another bucket.
    """
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise Invalid("the message is not JSON") from None
    if not isinstance(message, dict):
        raise Invalid("the message must be a JSON object")
    if message.get("Event") == _TEST:
        return []
    if "Records" in message:
        records = message["Records"]
        if not isinstance(records, list):
            raise Invalid("Records: expected a list of S3's notifications")
        return [look for record in records for look in _notified(record, lake_uri)]
    return _named(message)


def message_for(table: str, *, swept: bool = False) -> bytes:
    """Return a message for a table. That of a sweep is for the table's rejected events too."""
    return orjson.dumps({"table": table} | ({"sweep": True} if swept else {}))


def superseded(version: int, newest: int) -> bool:
    """Whether the notification of a version may be ignored, because a later one of the same table does its work.

    It gives way to the next version that ends in at least as many zeros, once that is committed. So of the messages
    that wait for a table when a worker looks, at most one for each power of ten is left to do, however many commits
    they are about, and the worker of one seldom meets that of another. A table that gets commits all the time is not
    starved: a version that ends in more zeros than that number of commits has digits never gives way.
    """
    step = NOTIFIED_EVERY
    while version and version % (step * 10) == 0:
        step *= 10
    return version + step <= newest


def _named(message: dict[str, Any]) -> list[Look]:
    table, swept = message.get("table"), message.get("sweep", False)
    if not isinstance(table, str) or not TABLE_OR_REJECTS.fullmatch(table):
        raise Invalid("the message is neither a notification of S3 nor one that names a table")
    if not isinstance(swept, bool):
        raise Invalid("sweep: expected true or false")
    names = (table, f"{table}/{REJECTS}") if swept and "/" not in table else (table,)
    return [Look(name, swept=swept) for name in names]


def _notified(record: object, lake_uri: str) -> Iterable[Look]:
    """Return the table of one notification. Keys are encoded as in a form. Source: "Event message structure" of S3."""
    try:
        event, bucket, key = record["eventName"], record["s3"]["bucket"]["name"], record["s3"]["object"]["key"]  # type: ignore[index]
    except (KeyError, TypeError):
        raise Invalid("Records: expected S3's notifications, each with s3.bucket.name and s3.object.key") from None
    if not (isinstance(event, str) and isinstance(bucket, str) and isinstance(key, str)):
        raise Invalid("Records: eventName, s3.bucket.name and s3.object.key must be text")
    place = _S3.fullmatch(lake_uri)
    if place is not None and bucket != place["bucket"]:
        raise Invalid(f"the notification is about another bucket than the lake's: {bucket:.100}")
    match = _COMMIT.fullmatch(unquote_plus(key))
    if match is None or not event.startswith("ObjectCreated:"):
        return
    if place is None or (match["folder"] or "") == place["prefix"].rstrip("/"):
        yield Look(match["table"], int(match["version"]))
