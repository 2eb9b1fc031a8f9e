"""Any course of events on one name, against a plain model: which tables there are, what is in them, what comes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import MetadataChanged, TableExists, TableNotFound, VersionExpired, VersionNotFound
from alluvia.store import MemoryStore
from tests.contract.workers import events
from tests.examples import examples

PROPERTIES = {"delta.checkpointInterval": "3", "alluvia.dedup_window": "365 days"}
LAKES = st.integers(0, 1)
IDS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3)
STEPS = st.one_of(
    st.tuples(st.just("ingest"), LAKES, IDS),
    st.tuples(st.just("append"), LAKES, st.integers(1, 3)),
    st.tuples(st.sampled_from(["drop", "create", "merge", "checkpoint", "vacuum", "cold"]), LAKES, st.none()),
    st.tuples(st.sampled_from(["undrop", "restore"]), LAKES, st.integers(0, 3)),
    st.tuples(st.just("replace"), LAKES, IDS),
)


@dataclass
class Content:
    """A table's rows by event id; the ids that ingestion knows; the highest number of the application `app`.

    `versions` has the rows of each version that can be read, and what ingestion knew; `ever` all rows there were.
    """

    rows: Counter[str] = field(default_factory=Counter)
    known: set[str] = field(default_factory=set)
    number: int = -1
    versions: dict[int, tuple[Counter[str], set[str]]] = field(default_factory=dict)
    ever: set[str] = field(default_factory=set)


class Model:
    """What must be: the live table, and the dropped ones by the version of their drop, None once vacuum took them."""

    def __init__(self) -> None:
        self.live: Content | None = None
        self.dropped: dict[int, Content | None] = {}


class Run:
    """Two processes on one lake."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore("m", self.clock)
        self.lakes = [Lake(self.store, self.clock) for _ in range(2)]
        self.model = Model()

    def step(self, name: str, at: int, argument: object) -> None:
        self.clock.advance(1)
        lake, model = self.lakes[at], self.model
        if name == "cold":
            self.lakes[at] = Lake(self.store, self.clock)
        elif name == "create":
            self.create(lake)
        elif name == "undrop":
            assert isinstance(argument, int)
            self.undrop(lake, argument)
        elif name == "vacuum":
            self.vacuum(lake)
        elif model.live is None:
            self.refused(lake, name)
        elif name == "drop":
            model.dropped[lake.drop_table("t").version] = model.live
            model.live = None
        elif name == "ingest":
            assert isinstance(argument, Sequence)
            self.ingest(lake, argument, model.live)
        elif name == "replace":
            assert isinstance(argument, Sequence)
            self.replace(lake, argument, model.live)
        elif name == "restore":
            assert isinstance(argument, int)
            self.restore(lake, argument, model.live)
        elif name == "append":
            assert isinstance(argument, int)
            self.append(lake, argument, model.live)
        else:
            _ = lake.table("t").optimize() if name == "merge" else lake.table("t").checkpoint()

    def create(self, lake: Lake) -> None:
        if self.model.live is None:
            lake.create_events("t", partition_by=(), properties=PROPERTIES)
            self.model.live = Content()
            return
        with pytest.raises(TableExists):
            lake.create_events("t")

    def undrop(self, lake: Lake, which: int) -> None:
        model = self.model
        if not model.dropped:
            with pytest.raises((TableNotFound, TableExists)):
                lake.undrop("t")
            return
        version = sorted(model.dropped)[which % len(model.dropped)]
        content = model.dropped[version]
        if model.live is not None or content is None:
            with pytest.raises(TableExists if model.live is not None else VersionExpired):
                lake.undrop("t", version)
            return
        lake.undrop("t", version)
        model.live = model.dropped.pop(version)

    def vacuum(self, lake: Lake) -> None:
        if self.model.live is None and not self.model.dropped:
            with pytest.raises(TableNotFound):
                lake.table("t").vacuum(timedelta(0))
            return
        oldest = lake.table("t").vacuum(timedelta(0)).oldest_version
        for version, content in self.model.dropped.items():
            if version <= oldest:
                self.model.dropped[version] = None
            else:
                assert content is not None
                assert not content.rows
                for gone in [each for each in content.versions if each < oldest]:
                    del content.versions[gone]
        if self.model.live is not None:
            self.model.live.versions.clear()

    def refused(self, lake: Lake, name: str) -> None:
        table = lake.table("t")
        calls: dict[str, Callable[[], object]] = {
            "drop": lambda: lake.drop_table("t"),
            "merge": table.optimize,
            "checkpoint": table.checkpoint,
        }
        calls |= {"ingest": table.snapshot, "append": lambda: table.append([]), "replace": table.snapshot}
        calls |= {"restore": lambda: table.restore(version=0)}
        with pytest.raises(TableNotFound):
            calls[name]()

    def ingest(self, lake: Lake, ids: Sequence[str], live: Content) -> None:
        schema = Lake(self.store, self.clock).table("t").snapshot().schema
        new = [each for each in dict.fromkeys(ids) if each not in live.known]
        done = None
        while done is None:
            try:
                done = lake.table("t").ingest(events(schema, ids))
            except (TableNotFound, MetadataChanged):  # it was dropped or replaced, of which this process did not know
                continue
        assert (done.appended, done.duplicates) == (len(new), len(ids) - len(new))
        live.rows.update(new)
        live.known |= set(new)

    def replace(self, lake: Lake, ids: Sequence[str], live: Content) -> None:
        """Put a table in the place of the live one that takes the rows of some events over."""
        rows = Lake(self.store, self.clock).table("t").to_arrow()
        kept = rows.filter(pc.is_in(rows["event_id"], value_set=pa.array(ids)))
        with lake.transaction() as tx:
            new = tx.create_table("t", rows.schema, properties=PROPERTIES, replace=True)
            if len(kept):
                new.append(kept)
        live.rows = Counter(kept["event_id"].to_pylist())
        live.known &= set(live.rows)
        live.number = -1

    def restore(self, lake: Lake, which: int, live: Content) -> None:
        """Bring one of the last versions back, with what ingestion knew then."""
        known = sorted(live.versions)[-4:]
        if not known:
            return
        version = known[which % len(known)]
        try:
            lake.table("t").restore(version=version)
        except VersionExpired:
            return
        rows, events_known = live.versions[version]
        live.rows, live.known = Counter(rows), set(events_known)

    def append(self, lake: Lake, number: int, live: Content) -> None:
        table = Lake(self.store, self.clock).table("t")
        rows = events(table.snapshot().schema, [f"row {number}"])
        assert table.append(rows, txn=("app", number)).rows == (1 if number > live.number else 0)
        if number > live.number:
            live.rows[f"row {number}"] += 1
            live.number = number

    def check(self) -> None:
        model = self.model
        for lake in (*self.lakes, Lake(self.store, self.clock)):
            assert lake.tables() == ([] if model.live is None else ["t"])
        if model.live is None:
            return
        lake = self.lakes[0]
        table = lake.table("t")
        found = table.scan(["event_id"]).read_all()["event_id"].to_pylist()
        assert Counter(found) == model.live.rows
        newest = table.snapshot().version
        model.live.versions[newest] = Counter(model.live.rows), set(model.live.known)
        model.live.ever |= set(found)
        for version in range(newest):
            try:
                then = Counter(table.scan(["event_id"], version=version).read_all()["event_id"].to_pylist())
            except (VersionNotFound, VersionExpired):
                assert version not in model.live.versions
            else:
                assert then == model.live.versions.get(version, (then,))[0]
                assert set(then) <= model.live.ever


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(st.integers(0, 3), st.lists(STEPS, min_size=5, max_size=25))
@example(1, [("append", 0, 1), ("restore", 0, 0), ("drop", 0, None), ("vacuum", 0, None), ("undrop", 0, 0)])
def test_any_course_of_events(begins: int, steps: list[tuple[str, int, object]]) -> None:
    run = Run()
    if begins:  # most begin with a table: much else is refused until one is created
        run.step("create", 0, None)
    for name, at, argument in steps:
        run.step(name, at, argument)
        run.check()
