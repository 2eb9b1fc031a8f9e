"""Lists of actions in, a verdict out: one row of the matrix after another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from alluvia.commit.conflicts import Attempt, find_conflict, moved_reads, without_undone_moves
from alluvia.delta.log.actions import AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from alluvia.delta.log.commit import CommitActions
from alluvia.errors import (
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    ConcurrentDomain,
    ConcurrentTransaction,
    Conflict,
    FilesCompacted,
    MetadataChanged,
    ProtocolChanged,
)


def schema(*fields: tuple[str, str, bool]) -> str:
    return orjson.dumps(
        {
            "type": "struct",
            "fields": [{"name": n, "type": t, "nullable": null, "metadata": {}} for n, t, null in fields],
        }
    ).decode()


METADATA = Metadata("id", schema(("x", "long", True)), ("p",), {"alluvia.partition_by": '["p"]'})


def add(path: str, *, data_change: bool = True) -> AddFile:
    return AddFile(path, {}, 1, 1, data_change)


def remove(path: str, *, data_change: bool = True) -> RemoveFile:
    return RemoveFile(path, 1, data_change)


def everything(_: AddFile) -> bool:
    return True


def only(path: str) -> Callable[[AddFile], bool]:
    return lambda file: file.path == path


ATTEMPTS = {
    "blind append": Attempt(METADATA, adds=[add("ours")]),
    "read all, then add": Attempt(METADATA, adds=[add("ours")], can_match=everything, files_read=frozenset({"f", "g"})),
    "read others, then add": Attempt(METADATA, adds=[add("ours")], can_match=only("z"), files_read=frozenset({"g"})),
    "delete": Attempt(METADATA, removes=[remove("f")], can_match=only("z"), files_read=frozenset({"f"})),
    "update": Attempt(
        METADATA, adds=[add("ours")], removes=[remove("f")], can_match=everything, files_read=frozenset({"f"})
    ),
    "compaction": Attempt(METADATA, adds=[add("ours", data_change=False)], removes=[remove("f", data_change=False)]),
}
WINNERS = {
    "blind append": [CommitActions(7, adds=[add("a")])],
    "delete of f": [CommitActions(7, removes=[remove("f")])],
    "delete of another": [CommitActions(7, removes=[remove("other")])],
    "update of f": [CommitActions(7, removes=[remove("f")], adds=[add("a")])],
    "compaction of f": [CommitActions(7, removes=[remove("f", data_change=False)], adds=[add("c", data_change=False)])],
    "compaction of others": [
        CommitActions(7, removes=[remove("g", data_change=False)], adds=[add("c", data_change=False)])
    ],
    "nothing": [CommitActions(7)],
}
MATRIX: dict[str, dict[str, type[Conflict] | None]] = {
    "blind append": dict.fromkeys(WINNERS),
    "read all, then add": {
        "blind append": ConcurrentAppend,
        "delete of f": ConcurrentDeleteRead,
        "delete of another": None,
        "update of f": ConcurrentAppend,
        "compaction of f": None,
        "compaction of others": None,
        "nothing": None,
    },
    "read others, then add": dict.fromkeys(WINNERS),
    "delete": {
        "blind append": None,
        "delete of f": ConcurrentDeleteRead,
        "delete of another": None,
        "update of f": ConcurrentDeleteRead,
        "compaction of f": FilesCompacted,
        "compaction of others": None,
        "nothing": None,
    },
    "update": {
        "blind append": ConcurrentAppend,
        "delete of f": ConcurrentDeleteRead,
        "delete of another": None,
        "update of f": ConcurrentAppend,
        "compaction of f": FilesCompacted,
        "compaction of others": None,
        "nothing": None,
    },
    "compaction": {
        "blind append": None,
        "delete of f": ConcurrentDeleteDelete,
        "delete of another": None,
        "update of f": ConcurrentDeleteDelete,
        "compaction of f": ConcurrentDeleteDelete,
        "compaction of others": None,
        "nothing": None,
    },
}


@pytest.mark.parametrize("winner", WINNERS)
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_the_matrix_of_file_changes(attempt: str, winner: str) -> None:
    assert verdict(ATTEMPTS[attempt], WINNERS[winner][0]) is MATRIX[attempt][winner]


def verdict(attempt: Attempt, winner: CommitActions) -> type[Conflict] | None:
    found = find_conflict(attempt, winner)
    assert found is None or "version 7" in str(found)
    return None if found is None else type(found)


def metadata(**changes: Any) -> CommitActions:
    return CommitActions(7, metadata=replace(METADATA, **changes))


HARMLESS = [
    metadata(),
    metadata(schema_string=schema(("x", "long", True), ("y", "string", True))),
    metadata(configuration={**METADATA.configuration, "alluvia.sort_by": '["x"]'}),
    metadata(name="renamed", description="text"),
]
HARMFUL = [
    metadata(schema_string=schema(("x", "long", True), ("y", "string", False))),
    metadata(schema_string=schema(("x", "string", True))),
    metadata(schema_string=schema(("y", "long", True))),
    metadata(schema_string=schema(("y", "string", True), ("x", "long", True))),
    metadata(partition_columns=()),
    metadata(id="another table"),
    metadata(configuration={"alluvia.partition_by": '["day(ts)"]'}),
    metadata(configuration={**METADATA.configuration, "delta.appendOnly": "true"}),
    metadata(configuration={**METADATA.configuration, "delta.enableInCommitTimestamps": "true"}),
]


@pytest.mark.parametrize("winner", HARMLESS)
def test_a_harmless_change_of_metadata_stops_only_those_who_read_or_change_it(winner: CommitActions) -> None:
    for name in ("blind append", "compaction"):
        assert verdict(ATTEMPTS[name], winner) is None
    for name in ("read all, then add", "read others, then add", "delete", "update"):
        assert verdict(ATTEMPTS[name], winner) is MetadataChanged
    assert verdict(Attempt(METADATA, metadata=METADATA), winner) is MetadataChanged


@pytest.mark.parametrize("winner", HARMFUL)
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_any_other_change_of_metadata_stops_everyone(attempt: str, winner: CommitActions) -> None:
    assert verdict(ATTEMPTS[attempt], winner) is MetadataChanged


@pytest.mark.parametrize("winner", [each[0] for each in WINNERS.values()])
def test_a_change_of_metadata_alone_minds_no_files(winner: CommitActions) -> None:
    assert verdict(Attempt(METADATA, metadata=METADATA), winner) is None


def test_a_change_of_protocol_stops_those_who_change_protocol_or_metadata() -> None:
    winner = CommitActions(7, protocol=Protocol(1, 7, None, ("alluvia",)))
    for attempt in ATTEMPTS.values():
        assert verdict(attempt, winner) is None
    assert verdict(Attempt(METADATA, protocol=Protocol(1, 2)), winner) is ProtocolChanged
    assert verdict(Attempt(METADATA, metadata=METADATA), winner) is ProtocolChanged


def test_a_transaction_that_a_winner_recorded_is_applied() -> None:
    winner = CommitActions(7, txns=[Txn("app", 3)])
    ours = replace(ATTEMPTS["blind append"], app_ids=frozenset({"app"}))
    other = replace(ATTEMPTS["blind append"], app_ids=frozenset({"another"}))
    assert verdict(ours, winner) is ConcurrentTransaction
    assert verdict(other, winner) is None
    assert verdict(ATTEMPTS["blind append"], winner) is None


def test_two_changes_of_one_domain_cannot_both_hold() -> None:
    winner = CommitActions(7, domains=[DomainMetadata("d", "1")])
    assert verdict(Attempt(METADATA, domains=[DomainMetadata("d", "2")]), winner) is ConcurrentDomain
    assert verdict(Attempt(METADATA, domains=[DomainMetadata("e", "2")]), winner) is None
    for attempt in ATTEMPTS.values():
        assert verdict(attempt, winner) is None


def test_a_file_is_minded_by_its_deletion_vector_too() -> None:
    vector = {"storageType": "u", "pathOrInlineDv": "x"}
    winner = CommitActions(7, removes=[replace(remove("f"), deletion_vector=vector)])
    assert verdict(ATTEMPTS["compaction"], winner) is None
    with_vector = replace(remove("f", data_change=False), deletion_vector=vector)
    assert verdict(Attempt(METADATA, removes=[with_vector]), winner) is ConcurrentDeleteDelete


def commits(*actions: tuple[list[AddFile], list[RemoveFile]]) -> list[CommitActions]:
    return [CommitActions(at, adds=adds, removes=removes) for at, (adds, removes) in enumerate(actions, 5)]


COMPACTION = [add("big", data_change=False)], [remove("f", data_change=False), remove("g", data_change=False)]
UNDONE = [add("f", data_change=False), add("g", data_change=False)], [remove("big", data_change=False)]


def test_a_compaction_that_was_undone_moved_nothing() -> None:
    left = without_undone_moves(commits(COMPACTION, ([add("new")], []), UNDONE))
    assert [[file.path for file in each.removes] for each in left] == [[], [], ["big"]]
    assert [[file.path for file in each.adds] for each in left] == [["big"], ["new"], ["f", "g"]]


def test_of_several_compactions_those_stay_that_were_not_undone() -> None:
    last = [add("last", data_change=False)], COMPACTION[1]
    left = without_undone_moves(commits(COMPACTION, UNDONE, last))
    assert [[file.path for file in each.removes] for each in left] == [[], ["big"], ["f", "g"]]
    part = without_undone_moves(commits(COMPACTION, ([add("f", data_change=False)], [])))
    assert [[file.path for file in each.removes] for each in part] == [["g"], []]


def test_reads_follow_a_compaction_whose_undoing_was_undone() -> None:
    left = without_undone_moves(commits(COMPACTION, UNDONE, COMPACTION))
    assert [[file.path for file in each.removes] for each in left] == [[], [], ["f", "g"]]
    read = frozenset({"f"})
    for winner in left:
        read = moved_reads(read, winner)
    assert "big" in read


def test_a_file_that_comes_back_as_a_change_of_rows_was_gone() -> None:
    restored = commits(COMPACTION, ([add("f")], [remove("big")]))
    assert without_undone_moves(restored) == restored
    deleted = commits(([], [remove("f")]), ([add("f", data_change=False)], []))
    assert without_undone_moves(deleted) == deleted
