"""Try the conditional writes of an S3-compatible store: `python -m tests.s3_stores ENDPOINT BUCKET`.

Keys are those of the environment (`AWS_ACCESS_KEY_ID`, …). It asks what the library asks before its first write; then
many threads at once create objects, and replace objects, of which each time one may succeed; then some threads append
to a table. It prints what held. docs/STORES.md has what came of it.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import alluvia
from alluvia.clock import SystemClock
from alluvia.errors import AlluviaError
from alluvia.store import PutResult, Store, open_store

THREADS, ROUNDS, APPENDS = 8, 200, 80


def created(store: Store, number: int, body: bytes) -> bool:
    return store.put_if_absent(f"race/{number}", body) is PutResult.CREATED


def races(store: Store, attempt: Callable[[int, bytes], bool], read: Callable[[int], bytes]) -> int:
    """Return how many of the races had another end than one winner, whose bytes are there."""
    barrier = Barrier(THREADS)

    def enter(number: int, mine: bytes) -> bool:
        barrier.wait()
        return attempt(number, mine)

    wrong = 0
    with ThreadPoolExecutor(THREADS) as pool:
        for number in range(ROUNDS):
            bodies = [b"%d of %d" % (thread, number) * 300 for thread in range(THREADS)]
            won = list(pool.map(enter, [number] * THREADS, bodies))
            there = read(number)
            wrong += sum(won) != 1 or there != bodies[won.index(True)]
    return wrong


def of_creation(store: Store) -> str:
    wrong = races(store, lambda number, body: created(store, number, body), lambda number: store.get(f"race/{number}"))
    return f"{ROUNDS - wrong} of {ROUNDS} races had one winner"


def of_replacement(store: Store) -> str:
    store.put("replaced", b"first")
    seen: dict[int, str] = {}

    def attempt(number: int, body: bytes) -> bool:
        return store.put_if_same("replaced", body, seen[number])

    def read(number: int) -> bytes:
        data, tag = store.get_tagged("replaced")
        seen[number + 1] = tag
        return data

    read(-1)
    wrong = races(store, attempt, read)
    return f"{ROUNDS - wrong} of {ROUNDS} races had one winner"


def of_appends(store: Store) -> str:
    lake = alluvia.Lake(store, SystemClock())
    lake.create_table("t", {"x": "long"})

    def append(number: int) -> None:
        lake_of_its_own = alluvia.Lake(store, SystemClock())
        lake_of_its_own.table("t").append([{"x": number}])

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(append, range(APPENDS)))
    found = alluvia.Lake(store, SystemClock()).table("t").to_arrow()["x"].to_pylist()
    return f"{len(found)} rows of {APPENDS} appends"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.s3_stores", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("endpoint", help="such as http://127.0.0.1:9000")
    parser.add_argument("bucket", help="a bucket that is there; objects are left in it")
    given = parser.parse_args()
    uri = f"s3://{given.bucket}/tried-{uuid.uuid4().hex[:8]}"
    store = open_store(uri, SystemClock(), endpoint_url=given.endpoint)
    for name, part in (("create", of_creation), ("replace", of_replacement), ("append", of_appends)):
        try:
            answer = part(store)
        except AlluviaError as error:
            answer = f"{type(error).__name__}: {error}"
        sys.stdout.write(f"{name}: {answer}\n")


if __name__ == "__main__":
    main()
