"""An event is its id: exactly once within the window, in whatever batch, process or moment it comes."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

import orjson
import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.paths import LOG_FOLDER, commit_name
from alluvia.delta.properties import read_properties
from alluvia.delta.schema.serialization import arrow_schema, schema_string
from alluvia.errors import AnswerLost, CommitUnknown, Invalid, Unavailable
from alluvia.store import CountingStore, MemoryStore, PutResult
from tests.contract.workers import events
from tests.unit.operations.ingesting import ingest, stored
from tests.unit.operations.ingesting import table as table  # noqa: PLC0414 - a fixture


def test_an_event_is_there_once_whoever_brings_it_again(table: Table, lake: Lake, other: Lake) -> None:
    assert ingest(table, "a", "b", "a") == (2, 1)
    assert ingest(table, "b", "c") == (1, 1)
    assert ingest(other.table("t"), "a", "b", "c", "d") == (1, 3)
    assert ingest(table, "d", "e") == (1, 1)
    assert stored(table) == ["a", "b", "c", "d", "e"]


def test_a_batch_of_known_events_commits_nothing_and_names_a_version_that_holds_them(table: Table) -> None:
    ingest(table, "a")
    answer = table.ingest(events(table.snapshot().schema, ["a", "a"]))
    assert (answer.version, answer.appended, answer.duplicates) == (1, 0, 2)
    empty = table.ingest(events(table.snapshot().schema, []))
    assert (empty.version, empty.appended, empty.duplicates) == (1, 0, 0)


def test_a_lost_race_drops_what_the_winner_holds(table: Table, other: Lake) -> None:
    late = other.table("t")
    late.snapshot()
    ingest(table, "a", "b")
    assert ingest(late, "b", "c") == (1, 1)
    also_late = Lake(table.lake.store, table.lake.clock).table("t")
    also_late.snapshot()
    ingest(table, "x")
    assert ingest(also_late, "x") == (0, 1)
    assert ingest(also_late, "x", "y") == (1, 1)
    assert stored(table) == ["a", "b", "c", "x", "y"]


def test_a_lost_race_without_common_events_writes_no_file(table: Table, other: Lake, store: CountingStore) -> None:
    late = other.table("t")
    late.snapshot()
    ingest(late, "0")
    ingest(table, "a")
    store.reset()
    assert ingest(late, "b") == (1, 0)
    assert [kind for kind, key in store.keys if kind == "put" and key.endswith(".parquet")] == ["put"]


def other_content(schema: pa.Schema, *ids: str) -> pa.Table:
    """Return events with another kind than those of `events`."""
    rows = events(schema, ids)
    at = rows.schema.get_field_index("event")
    return rows.set_column(at, rows.schema.field(at), pa.array(["other"] * len(ids)))


def test_the_first_of_two_events_with_one_id_in_a_batch_stays(table: Table) -> None:
    schema = table.snapshot().schema
    rows = pa.concat_tables([events(schema, ["a"]), other_content(schema, "a"), events(schema, ["a"])])
    answer = table.ingest(rows)
    assert (answer.appended, answer.duplicates, answer.clashes) == (1, 1, (1,))
    assert table.scan(["event"]).read_all().to_pylist() == [{"event": "click"}]


@pytest.mark.parametrize("who", ["the same process", "another", "a cold one on an index"])
def test_another_event_under_a_known_id_is_a_clash(lake: Lake, table: Table, other: Lake, who: str) -> None:
    schema = table.snapshot().schema
    ingest(table, "a", "b")
    if who == "a cold one on an index":
        table.checkpoint()
    sender = table if who == "the same process" else other.table("t")
    rows = pa.concat_tables([events(schema, ["c", "a"]), other_content(schema, "b", "c", "d")])
    answer = sender.ingest(rows)
    assert (answer.appended, answer.duplicates, answer.clashes) == (2, 1, (2, 3))
    again = Lake(lake.store, lake.clock).table("t").ingest(rows)
    assert (again.appended, again.duplicates, again.clashes) == (0, 3, (2, 3))
    assert stored(table) == ["a", "b", "c", "d"]


def test_a_winner_with_other_content_makes_a_clash(table: Table, other: Lake) -> None:
    late = other.table("t")
    schema = late.snapshot().schema
    ingest(table, "a", "b")
    rows = pa.concat_tables([other_content(schema, "a"), events(schema, ["b", "c", "a"])])
    answer = late.ingest(rows)
    assert (answer.appended, answer.duplicates, answer.clashes) == (1, 2, (0,))
    assert stored(table) == ["a", "b", "c"]


def test_given_contents_decide_what_clashes(table: Table) -> None:
    rows = events(table.snapshot().schema, ["a", "b"])
    assert table.ingest(rows, [b"1234", bytes(4)]).appended == 2
    assert table.ingest(rows, [b"1234", bytes(4)]).duplicates == 2
    assert table.ingest(rows, [b"123_", b"0000"]).clashes == (0, 1)


@pytest.mark.parametrize("contents", [[], [b"1234"], [b"1234", b"123"]])
def test_contents_that_are_not_one_for_each_row_are_refused(table: Table, contents: list[bytes]) -> None:
    with pytest.raises(Invalid, match="contents"):
        table.ingest(events(table.snapshot().schema, ["a", "b"]), contents)


def test_the_same_id_of_another_source_is_another_event(table: Table) -> None:
    schema = table.snapshot().schema
    rows = pa.concat_tables([events(schema, ["a"], source) for source in ("shop", "", "sho")])
    rows = pa.concat_tables([rows, rows.slice(0, 1)])
    answer = table.ingest(rows)
    assert (answer.appended, answer.duplicates, answer.clashes) == (3, 1, ())


def test_what_a_delivery_adds_is_not_content(table: Table) -> None:
    moment, before = datetime(2026, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC)
    for later in range(2):
        at = moment + timedelta(seconds=later)
        rows = [{"event_id": "a", "ts": at, "received_at": at}, {"event_id": "b", "ts": before, "received_at": at}]
        answer = table.ingest(pa.Table.from_pylist(rows, table.snapshot().schema))
        assert (answer.appended, answer.duplicates) == ((2, 0) if not later else (0, 2))


def test_a_column_that_is_added_makes_no_other_content(table: Table) -> None:
    ingest(table, "a")
    table.evolve({"extra": "long"})
    assert ingest(table, "a") == (0, 1)


def as_before(store: CountingStore, version: int, *ids: str) -> None:
    """Have a commit carry what earlier versions of this library wrote: ids without their sources, and no contents."""
    key = f"t/{commit_name(version)}"
    lines = store.get(key).splitlines()
    info = orjson.loads(lines[0])
    del info["commitInfo"]["alluviaEventContents"]
    prints = b"".join(blake2b(each.encode(), digest_size=12).digest() for each in ids)
    info["commitInfo"]["alluviaEventIds"] = b64encode(prints).decode()
    store.delete([key])
    store.put(key, b"\n".join([orjson.dumps(info), *lines[1:]]))


@pytest.mark.parametrize("source", ["", "shop"])
def test_commits_without_contents_know_ids_as_before(
    table: Table, store: CountingStore, clock: ManualClock, source: str
) -> None:
    """Whatever comes again under the ids of such a commit is a duplicate, from any source."""
    schema = table.snapshot().schema
    ingest(table, "a", "b")
    as_before(store, 1, "a", "b")
    for checkpointed in (False, True):
        cold = Lake(store, clock).table("t")
        rows = pa.concat_tables([other_content(schema, "a"), events(schema, ["b"], source)])
        answer = cold.ingest(rows)
        assert (answer.appended, answer.duplicates, answer.clashes) == (0, 2, ())
        if not checkpointed:
            cold.checkpoint()
            assert cold.verify(full=True).ok
    clock.advance(1800)
    assert ingest(cold, "c") == (1, 0)
    answer = cold.ingest(events(schema, ["c", "a"], "new"))
    assert (answer.appended, answer.duplicates) == (1, 1)
    clock.advance(2000)
    assert ingest(cold, "d") == (1, 0)
    assert ingest(cold, "a", "c", "d") == (1, 2)


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        (pa.table({"x": [1]}), "needs a column event_id"),
        (pa.table({"event_id": [1]}), "event_id"),
        (pa.table({"event_id": pa.array([None], pa.string())}), "event_id"),
        (pa.table({"event_id": ["a"]}), "column ts must not be null"),
        (pa.table({"event_id": ["a"], "none": [1]}), "column none"),
    ],
)
def test_rows_without_an_id_or_that_do_not_fit_are_refused(table: Table, rows: pa.Table, named: str) -> None:
    with pytest.raises(Invalid, match=named):
        table.ingest(rows)
    assert table.snapshot().version == 0


def test_a_table_without_the_column_takes_no_events(lake: Lake) -> None:
    table = lake.create_table("plain", {"x": "long"})
    with pytest.raises(Invalid, match="event_id"):
        table.ingest(pa.table({"event_id": ["a"]}))


def test_a_column_added_by_another_process_is_taken(table: Table, other: Lake) -> None:
    stale = other.table("t")
    stale.snapshot()
    table.evolve({"extra": "long"})
    schema = table.snapshot().schema
    assert stale.ingest(events(schema, ["a"])).appended == 1


class Lossy(MemoryStore):
    """Does what a conditional put says, loses the answer, and then does not answer at all."""

    losing = down = False

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        result = super().put_if_absent(key, data)
        if self.losing:
            self.down = True
            msg = "lost"
            raise AnswerLost(msg)
        return result

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        if self.down:
            msg = "no answer"
            raise Unavailable(msg)
        return super().get(key, start, end)


def test_an_event_whose_commit_is_unknown_can_be_sent_again(clock: ManualClock) -> None:
    store = Lossy("m", clock)
    table = Lake(store, clock).create_events("t", partition_by=())
    ingest(table, "a")
    store.losing = True
    with pytest.raises(CommitUnknown):
        ingest(table, "b", "c")
    store.losing = store.down = False
    assert ingest(table, "b", "c", "d") == (1, 2)
    assert stored(table) == ["a", "b", "c", "d"]


def test_threads_that_share_a_handle_bring_each_event_once(table: Table) -> None:
    schema = table.snapshot().schema
    batches: Sequence[list[str]] = [[f"{start}", f"{start + 1}"] for start in range(10)] * 3

    def send(batch: list[str]) -> Any:
        return table.ingest(events(schema, batch))

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(send, batches))
    assert stored(table) == sorted(str(number) for number in range(11))
    assert sum(answer.appended for answer in answers) == 11
    assert all(answer.appended + answer.duplicates == 2 for answer in answers)


def test_a_commit_carries_the_fingerprints_of_its_new_events_only(table: Table) -> None:
    ingest(table, "a", "b")
    ingest(table, "b", "c")
    commits = [table._handle.log.read_commit(version) for version in (1, 2)]
    assert all(isinstance(commit, CommitActions) for commit in commits)
    sizes = [len(b64decode(commit.info["alluviaEventIds"])) for commit in commits if commit is not None]
    assert sizes == [2 * 12, 12]
    sizes = [len(b64decode(commit.info["alluviaEventContents"])) for commit in commits if commit is not None]
    assert sizes == [2 * 4, 4]
    names = [info.key for info in table.lake.store.list(f"t/{LOG_FOLDER}")]
    assert len(names) == 3


def test_schemas_and_properties_of_many_tables_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of all the tables that events may create, whose requests come in turns."""
    schemas = [schema_string(pa.schema([(f"c{number}", pa.int64())])) for number in range(1000)]
    given = [{"alluvia.id_field": f"data.{number}"} for number in range(1000)]
    for schema, properties in zip(schemas, given, strict=True):
        assert (len(arrow_schema(schema)), len(read_properties(properties).id_field)) == (1, 2)

    def again(*_: object) -> None:
        pytest.fail("parsed again")

    monkeypatch.setattr("alluvia.delta.schema.serialization.schema_fields", again)
    monkeypatch.setattr("alluvia.delta.properties._read", again)
    for schema, properties in zip(schemas, given, strict=True):
        assert (len(arrow_schema(schema)), len(read_properties(properties).id_field)) == (1, 2)


def test_a_warm_process_parses_schema_and_properties_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [events(table.snapshot().schema, [each]) for each in ("a", "b")]
    table.ingest(rows[0])

    def again(*_: object) -> None:
        pytest.fail("parsed again")

    monkeypatch.setattr("alluvia.delta.schema.serialization.schema_fields", again)
    monkeypatch.setattr("alluvia.delta.protocols.schema_fields", again)
    monkeypatch.setattr("alluvia.delta.properties._read", again)
    assert table.ingest(rows[1]).appended == 1
    assert table.ingest(rows[0]).duplicates == 1
