"""Keys of uploads: a file is stored once, and its first answer comes again."""

from __future__ import annotations

import gzip
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import alluvia
from alluvia.clock import ManualClock
from alluvia.delta.snapshot import Snapshot
from alluvia.files.uploads.storing import recorded, txn_of
from alluvia.store import MemoryStore
from functions.ingest.uploads import REPLAYED
from tests.functions.sent_files import CSV, refused, rows, send


@pytest.fixture
def lake(tmp_path: Path) -> alluvia.Lake:
    return alluvia.connect(str(tmp_path))


def test_a_key_stores_a_file_once_and_gives_the_first_answer(lake: alluvia.Lake) -> None:
    first = send(lake, "prices", CSV, "format=csv", idempotency_key="2026-11-23")
    send(lake, "prices", CSV, "format=csv")
    again = send(alluvia.connect(lake.uri), "prices", gzip.compress(CSV), "format=csv&key=2026-11-23")
    assert again[:2] == first[:2]
    assert (first[2].get(REPLAYED), again[2][REPLAYED]) == (None, "true")
    assert lake.table("prices").count() == 4
    found = refused(send(lake, "prices", CSV + b"9,1,1\n", "format=csv&key=2026-11-23"))
    assert found == (422, "this key was used for an upload of other content: use one key for each content")
    assert lake.table("prices").count() == 4
    assert refused(send(lake, "prices", CSV, "format=csv&key=a", idempotency_key="b"))[0] == 400


def test_a_key_comes_again_after_a_restore_took_its_rows_back(lake: alluvia.Lake) -> None:
    first, second = "format=csv&key=1", "format=csv&key=2"
    more = b"sku,price,stock\n9,1.5,3\n"
    send(lake, "prices", CSV, first)
    send(lake, "prices", more, second)
    lake.table("prices").restore(version=1)
    assert [send(lake, "prices", CSV, first)[2].get(REPLAYED), send(lake, "prices", more, first)[0]] == ["true", 422]
    assert send(lake, "prices", more, second)[1] == {"table": "prices", "rows": 1, "version": 4}
    assert send(lake, "prices", more, second)[2][REPLAYED] == "true"
    assert lake.table("prices").count() == 3
    lake.table("prices").restore(version=3)
    lake.table("prices").restore(version=4)
    status, body, headers = send(lake, "prices", more, second)
    assert (status, body, headers[REPLAYED]) == (200, {"table": "prices", "rows": None, "version": 6}, "true")
    assert lake.table("prices").count() == 3


def test_a_key_of_rows_that_came_with_a_clone_says_no_number(lake: alluvia.Lake) -> None:
    send(lake, "prices", CSV, "format=csv&key=1")
    send(lake, "prices", CSV, "format=csv")
    lake.clone("prices", "copy", deep=True)
    status, body, headers = send(lake, "copy", CSV, "format=csv&key=1")
    assert (status, body, headers[REPLAYED]) == (200, {"table": "copy", "rows": None, "version": 0}, "true")


def test_a_key_whose_commit_has_left_the_log_still_stands_for_its_content_alone() -> None:
    clock = ManualClock()
    lake = alluvia.Lake(MemoryStore("keys", clock), clock)
    lake.create_table("t", {"a": "long"})
    assert send(lake, "t", b"a\n1\n", "format=csv&key=k")[1]["version"] == 1
    lake.table("t").append([{"a": 1}], txn=(txn_of("old", "").app_id, 1))  # as before numbers said the content
    for _ in range(4):
        clock.advance(31 * 86_400)
        send(lake, "t", b"a\n2\n", "format=csv")
        lake.table("t").checkpoint()
    lake.table("t").vacuum()
    assert lake.catalog.handle("t").log.oldest() > 2
    status, body, headers = send(lake, "t", b"a\n1\n", "format=csv&key=k")
    assert (status, body, headers[REPLAYED]) == (200, {"table": "t", "rows": None, "version": None}, "true")
    for key, why in (("k", "this key was used for an upload of other content"), ("old", "this key was used before")):
        for evolve in ("", "&evolve=true"):
            status, error = refused(send(lake, "t", b"a\n3\n", f"format=csv&key={key}{evolve}"))
            assert (status, error[: len(why)]) == (422, why)
    assert sorted(row["a"] for row in rows(lake, "t")) == [1, 1, 2, 2, 2, 2]


def test_the_commit_of_a_key_is_found_where_a_clock_has_stepped_back() -> None:
    clock = ManualClock()
    lake = alluvia.Lake(MemoryStore("clocks", clock), clock)
    lake.create_table("t", {"a": "long"})
    lake.table("t").append([{"a": 1}], txn=txn_of("k", "c"))
    snapshot = lake.catalog.handle("t").newest()
    for _ in range(3):
        clock.advance(10)
        lake.table("t").append([{"a": 2}])
    (txn,) = snapshot.state.txns.values()
    late = replace(txn, last_updated=clock.now_ms())
    snapshot = lake.catalog.handle("t").newest()
    stepped = replace(snapshot.state, txns={late.app_id: late})
    found = recorded(
        lake.catalog.handle("t").log, Snapshot(stepped, snapshot.root, snapshot.name), txn_of("k", "c"), ""
    )
    assert found is not None
    assert found.version == 1


def test_a_key_of_a_table_that_was_dropped_is_free(lake: alluvia.Lake) -> None:
    for _ in range(2):
        assert send(lake, "t", b"a\n1\n", "format=csv&key=k")[1]["rows"] == 1
        assert rows(lake, "t") == [{"a": 1}]
        lake.drop_table("t")


def test_uploads_of_one_key_and_other_content_at_once_store_one(lake: alluvia.Lake) -> None:
    lake.create_table("t", {"a": "long"})
    lakes = [alluvia.connect(lake.uri) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        queries = ("format=csv&key=k", "format=csv&key=k&evolve=1")
        answers = list(
            pool.map(lambda at: send(lakes[at], "t", b"a\n%d\n" % at, queries[at % 2])[0], range(len(lakes)))
        )
    assert sorted(answers) == [200, *[422] * 5]
    assert lake.table("t").count() == 1


def test_uploads_of_one_key_at_once_store_one(lake: alluvia.Lake) -> None:
    lake.create_table("t", {"a": "long"})
    lakes = [alluvia.connect(lake.uri) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda one: send(one, "t", b"a\n1\n", "format=csv&key=k"), lakes))
    assert [answer[:2] for answer in answers] == [(200, {"table": "t", "rows": 1, "version": 1})] * 6
    assert sum(REPLAYED not in answer[2] for answer in answers) == 1
    assert lake.table("t").count() == 1
