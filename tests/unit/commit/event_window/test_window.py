from __future__ import annotations

from base64 import b64decode
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alluvia.commit.event_window.id_runs import FINGERPRINT_BYTES, CommitIds
from alluvia.commit.event_window.index import index_name, read_index, write_index
from alluvia.commit.event_window.window import (
    UNKNOWN,
    DedupWindow,
    WindowRules,
    encode_event_ids,
    event_ids_of,
    fingerprints,
)
from alluvia.delta.log.commit import CommitActions
from alluvia.errors import Corrupt
from tests.unit.commit.event_window.old_window import old_index


def commit(version: int, timestamp_ms: int, *ids: str) -> CommitActions:
    contents = [b"%04d" % (version % 10_000)] * len(ids)
    return CommitActions(version, {"inCommitTimestamp": timestamp_ms, **encode_event_ids(fingerprints(ids), contents)})


def knows(window: DedupWindow, *ids: str) -> list[bool]:
    held = window.held(fingerprints(ids))
    return [fingerprint in held for fingerprint in fingerprints(ids)]


def test_fingerprints_are_short_and_differ() -> None:
    prints = fingerprints(["a", "b", "", "é🌊", "a" * 10_000])
    assert {len(each) for each in prints} == {FINGERPRINT_BYTES}
    assert len(set(prints)) == 5
    assert fingerprints(["a"]) == prints[:1]


def test_an_id_counts_within_its_source() -> None:
    pairs = [("b", None), ("b", "a"), ("b", ""), ("", "ab"), ("ab", ""), ("ab", None), ("1:ab", None), ("\0b", "a")]
    prints = fingerprints([event_id for event_id, _ in pairs], [source for _, source in pairs])
    assert len(set(prints)) == len(pairs)
    assert prints[0] == fingerprints(["b"])[0]
    assert prints[0].hex() == "78c75aee12eacf55ab4b0120"


def test_a_commit_carries_them_as_text() -> None:
    prints, contents = fingerprints(["a", "b", "c"]), [b"1234", b"5678", bytes(4)]
    info = encode_event_ids(prints, contents)
    assert [len(text) for text in info.values()] == [3 * 16, 3 * 16 / 3]
    assert event_ids_of(CommitActions(1, info)) == CommitIds(1, 0, b"".join(prints), b"".join(contents))
    assert event_ids_of(CommitActions(1, {})) == CommitIds(1, 0, b"", b"")
    old = {"alluviaEventIds": info["alluviaEventIds"]}
    assert event_ids_of(CommitActions(1, old)) == CommitIds(1, 0, b"".join(prints), UNKNOWN * 3)


def test_many_are_one_text() -> None:
    prints = fingerprints(map(str, range(10_000)))
    contents = [each[:4] for each in prints]
    ids, hashes = encode_event_ids(prints, contents).values()
    assert (b64decode(ids, validate=True), b64decode(hashes, validate=True)) == (b"".join(prints), b"".join(contents))


@pytest.mark.parametrize("key", ["alluviaEventIds", "alluviaEventContents"])
@pytest.mark.parametrize("broken", ["not base64!", "abc", 5, ["x"], "YWI=", "YWJjZGFiY2RhYmNkYWJjZA=="])
def test_a_damaged_list_of_ids_is_an_error(key: str, broken: object) -> None:
    info = encode_event_ids(fingerprints(["a"]), [b"1234"])
    with pytest.raises(Corrupt, match="version 9: its event ids"):
        event_ids_of(CommitActions(9, {**info, key: broken}))


def test_ids_are_forgotten_by_the_logs_time() -> None:
    window = DedupWindow(WindowRules(1000))
    window.follow([commit(1, 5000, "a"), commit(2, 5500, "b"), commit(3, 6000)])
    assert knows(window, "a", "b") == [True, True]
    window.follow([commit(4, 6001)])
    assert knows(window, "a", "b") == [False, True]
    window.follow([commit(5, 99_999, "c")])
    assert knows(window, "a", "b", "c") == [False, False, True]
    assert [ids.version for ids in window.entries()] == [5]


def test_an_id_that_came_again_lasts_from_then_on() -> None:
    window = DedupWindow(WindowRules(1000))
    window.follow([commit(1, 0, "a", "b"), commit(2, 900, "a")])
    window.follow([commit(3, 1500)])
    assert knows(window, "a", "b") == [True, False]


def test_a_commit_is_followed_once() -> None:
    window = DedupWindow(WindowRules(1000))
    commits = [commit(1, 0, "a"), commit(2, 10, "b")]
    window.follow(commits)
    window.follow(commits)
    assert (window.version, len(list(window.entries()))) == (2, 2)


IDS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), max_size=4)


@given(st.lists(st.tuples(st.integers(0, 400), IDS), max_size=12), st.integers(0, 12), st.integers(1, 1000))
def test_the_index_holds_what_following_all_commits_would_know(
    steps: list[tuple[int, list[str]]], at: int, window_ms: int
) -> None:
    commits, now = [], 0
    for version, (later, ids) in enumerate(steps):
        now += later
        commits.append(commit(version, now, *ids))
    whole = DedupWindow(WindowRules(window_ms))
    whole.follow(commits)
    early = DedupWindow(WindowRules(window_ms))
    early.follow(commits[:at])
    reopened = read_index(write_index(early), "x", WindowRules(window_ms), early.version)
    assert list(reopened.entries()) == list(early.entries())
    reopened.follow(commits)
    every = [each for _, ids in steps for each in ids]
    assert knows(reopened, *every) == knows(whole, *every)
    assert reopened.version == whole.version
    within = {each for version, (_, ids) in enumerate(steps) for each in ids
              if commits[version].timestamp_ms >= now - window_ms}  # fmt: skip
    assert dict(zip(every, knows(whole, *every), strict=True)) == {each: each in within for each in every}


@pytest.mark.parametrize("data", [b"", b"ARROW1", b"garbage"])
def test_a_damaged_index_is_named(data: bytes) -> None:
    with pytest.raises(Corrupt, match="some/name"):
        read_index(data, "some/name", WindowRules(1000), 5)


def test_an_index_with_any_damaged_byte_is_named_or_read() -> None:
    window = DedupWindow(WindowRules(1000))
    window.follow([commit(version, version, f"event {version}") for version in range(3)])
    data = write_index(window)
    named = 0
    for at in range(len(data)):
        try:
            read_index(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :], "some/name", WindowRules(1000), 5)
        except Corrupt as error:
            named += "some/name" in str(error)
    assert named > len(data) / 4


def test_an_index_with_other_columns_is_named() -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"version": pa.array([1], pa.int64()), "timestamp_ms": [1], "fingerprints": ["text"]})
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(Corrupt, match="some/name"):
        read_index(bytes(sink.getvalue()), "some/name", WindowRules(1000), 5)


BROKEN: list[tuple[dict[str, list[int | None]], str]] = [
    ({"head": [5, 4, 6]}, "not sorted"),
    ({"commit": [0, 1, 2]}, "an id without a commit"),
    ({"version": []}, "of one length"),
    ({"tail": [1, 2]}, "of one length"),
    ({"content": [1, None, 2]}, "of one length"),
    ({name: [] for name in ("head", "tail", "content", "commit")}, "a run without ids"),
]


@pytest.mark.parametrize(("change", "named"), BROKEN)
def test_an_index_whose_run_is_none_is_named(change: dict[str, list[int | None]], named: str) -> None:
    run = {"version": [1, 2], "timestamp_ms": [1, 2], "head": [4, 4, 6], "tail": [1, 2, 3], "content": [1, 2, 3]}
    schema = pa.ipc.open_file(write_index(DedupWindow(WindowRules(1)))).schema
    for broken in (False, True):
        columns = {**run, "commit": [0, 1, 0], **(change if broken else {})}
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_table(pa.Table.from_pylist([columns], schema))
        if broken:
            with pytest.raises(Corrupt, match=f"some/name.*{named}"):
                read_index(bytes(sink.getvalue()), "some/name", WindowRules(1000), 5)
        else:
            read_index(bytes(sink.getvalue()), "some/name", WindowRules(1000), 5)


def test_an_old_index_of_cut_fingerprints_is_named() -> None:
    with pytest.raises(Corrupt, match=r"some/name.*version 1 has 13 bytes"):
        read_index(old_index([(1, 1, bytes(13))]), "some/name", WindowRules(1000), 5)


def test_a_run_is_gone_with_the_last_commit_that_is_the_tables_own() -> None:
    window = DedupWindow(WindowRules(1000))
    window.follow([commit(0, 0, "a"), commit(1, 900, "b")])
    own = WindowRules(1000, gaps=((1, 1),))
    window = read_index(write_index(window), "x", own, 1)
    assert knows(window, "a", "b") == [True, False]
    window.obey(replace(own, window_ms=10))
    assert knows(window, "a", "b") == [False, False]
    assert list(read_index(write_index(window), "x", own, 1).entries()) == []


def test_an_index_takes_twenty_bytes_an_id() -> None:
    window = DedupWindow(WindowRules(1000))
    for version in range(10):
        prints = b"".join(fingerprints(f"{version}-{at}" for at in range(1000)))
        window.add(CommitIds(version, version, prints, b"1234" * 1000))
    assert 20 * 10_000 < len(write_index(window)) < 20 * 10_000 + 4000


def test_an_index_stands_beside_its_checkpoint() -> None:
    assert index_name(12) == "_alluvia/window/00000000000000000012.arrow"


def test_a_lookup_of_many_ids_finds_the_same_as_of_few() -> None:
    window = DedupWindow(WindowRules(1 << 60))
    prints = fingerprints(f"e{at}" for at in range(12_000))
    for version, start in enumerate(range(0, 9000, 3000)):
        some = b"".join(prints[start : start + 3000])
        window.add(CommitIds(version, version, some, bytes([version + 1, 0, 0, 0]) * 3000))
    many = window.held(prints[2500:])
    assert many == {key: value for each in prints[2500:] for key, value in window.held([each]).items()}
    assert len(many) == 6500
    assert many[prints[5999]] == {bytes([2, 0, 0, 0])}
    assert window.held(prints[9000:]) == {}
