"""A lake of many tables, of which few get commits: what merge and vacuum cost, driven by the messages of S3 and sweeps.

Only the logs of idle tables exist, in memory. The handlers are the real ones; the store counts what they ask of it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

from alluvia.api.lake import Lake
from alluvia.clock import SystemClock
from alluvia.serverless import table_queue, warm_lake
from alluvia.serverless.settings import environment
from alluvia.store.counting import CountingStore
from alluvia.store.memory import MemoryStore
from functions.merge.handler import handler as merge
from functions.vacuum.handler import handler as vacuum

BATCH = 100
IDLE_COMMITS = 3


@dataclass(frozen=True, slots=True)
class Cost:
    """What a phase asked for: requests to the store by kind, calls of SQS, and calls of the function."""

    requests: Counter[str]
    sqs: int
    calls: int

    @property
    def dollars(self) -> float:
        """Return the price of the requests in us-east-1, without Lambda's time: PUT and LIST, GET and HEAD, SQS."""
        writes, reads = (sum(self.requests[kind] for kind in kinds) for kinds in (("put", "list"), ("get", "head")))
        return writes * 5e-6 + reads * 0.4e-6 + self.sqs * 0.4e-6 + self.calls * 0.2e-6


class ManyTables:
    """`tables` of them, all alike, of which the first `busy` get commits."""

    def __init__(self, tables: int, busy: int) -> None:
        self.clock = SystemClock()
        self.store = CountingStore(MemoryStore("many", self.clock))
        self.store.parallel = True  # as S3 is: then a listing of folders is all that finding tables takes
        self.names = [f"t{number:05}" for number in range(tables)]
        self.busy = self.names[:busy]
        first = Lake(self.store, self.clock).create_table(self.names[0], {"n": "long"})
        for number in range(IDLE_COMMITS):
            first.append([{"n": number}])
        first.optimize()
        objects = [(info.key.partition("/")[2], self.store.get(info.key)) for info in self.store.list("")]
        for name in self.names[1:]:
            for key, data in objects:
                self.store.put(f"{name}/{key}", data)

    def commit(self, commits: int) -> list[str]:
        """Append to the busy tables in turn, so many times, and return S3's notifications of that."""
        lake = Lake(self.store, self.clock)
        sent = []
        for _ in range(commits):
            for name in self.busy:
                version = lake[name].append([{"n": 1}]).version
                key = f"lake/{name}/_delta_log/{version:020}.json"
                if key.endswith("0.json"):
                    place = {"bucket": {"name": "any"}, "object": {"key": key}}
                    sent.append(json.dumps({"Records": [{"eventName": "ObjectCreated:Put", "s3": place}]}))
        return sent

    def merged(self, messages: Iterable[str], workers: int = 1) -> Cost:
        """Have merge take messages, in cold functions."""
        return self._taken(merge, messages, workers)

    def vacuumed(self, messages: Iterable[str], workers: int = 1) -> Cost:
        """Have vacuum take messages, in cold functions."""
        return self._taken(vacuum, messages, workers)

    def swept(self) -> tuple[Cost, list[str]]:
        """Have merge put all tables into its queue, and return the messages."""
        sent: list[str] = []

        def send_message_batch(QueueUrl: str, Entries: list[dict[str, str]]) -> dict[str, Any]:  # noqa: N803
            sent.extend(entry["MessageBody"] for entry in Entries)
            return {"Successful": Entries}

        client = SimpleNamespace(send_message_batch=mock.Mock(side_effect=send_message_batch))
        queue = environment({table_queue.QUEUE_URL: "https://queue"})
        with mock.patch.object(table_queue, "sqs", return_value=client), self._counted() as counted, queue:
            merge({}, None)
        return Cost(counted, client.send_message_batch.call_count, 1), sent

    def _taken(self, handler: Any, messages: Iterable[str], workers: int) -> Cost:
        records = [{"messageId": str(at), "body": body} for at, body in enumerate(messages)]
        calls = 0
        each = max(1, -(-len(records) // workers))
        total: Counter[str] = Counter()
        for first in range(0, len(records), each):
            share = records[first : first + each]
            with self._counted() as counted:
                for at in range(0, len(share), BATCH):
                    calls += 1
                    answer = handler({"Records": share[at : at + BATCH]}, None)
                    if answer["batchItemFailures"]:
                        msg = f"messages failed: {answer}"
                        raise AssertionError(msg)
            total += counted
        # SQS delivers and deletes ten messages a request.
        return Cost(total, 2 * -(-len(records) // 10), calls)

    @contextmanager
    def _counted(self) -> Iterator[Counter[str]]:
        self.store.reset()
        found: Counter[str] = Counter()
        with warm_lake.using(Lake(self.store, self.clock)):
            yield found
        found.update(self.store.requests)
