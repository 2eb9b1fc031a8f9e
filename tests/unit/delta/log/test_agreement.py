"""What a checkpoint must say as its own version's commit does, and what may differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from alluvia.delta.log.actions import Metadata, Protocol, RemoveFile, Txn
from alluvia.delta.log.checkpoints.reader import disagreement, first_lines
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.replay import State, replay
from tests.unit.delta.log.build import PROTOCOL, SCHEMA, add, metadata


@pytest.fixture
def state() -> State:
    first = CommitActions(0, {}, PROTOCOL, metadata(), [Txn("app", 3)])
    return replay(None, [first, CommitActions(1, adds=[add("f1")]), CommitActions(2, adds=[add("f2")])])


def removed(path: str) -> RemoveFile:
    return RemoveFile(path, 1, data_change=True)


def test_a_checkpoint_that_holds_its_commit_agrees(state: State) -> None:
    assert disagreement(state, CommitActions(2, {}, PROTOCOL, metadata(), [Txn("app", 3)], adds=[add("f2")])) is None
    assert disagreement(state, CommitActions(2, removes=[removed("gone")])) is None


def test_features_have_no_order(state: State) -> None:
    other = replace(PROTOCOL, writer_features=tuple(reversed(PROTOCOL.writer_features or ())), reader_features=())
    assert disagreement(state, CommitActions(2, protocol=other)) is None


def test_a_schema_may_be_written_in_another_order(state: State) -> None:
    text = SCHEMA.replace('{"type":"struct",', "{").removesuffix("}") + ',"type":"struct"}'
    assert text != SCHEMA
    assert disagreement(state, CommitActions(2, metadata=replace(metadata(), schema_string=text))) is None


@pytest.mark.parametrize(
    ("commit", "reason"),
    [
        (CommitActions(2, protocol=Protocol(1, 2)), "it holds another protocol"),
        (CommitActions(2, protocol=replace(PROTOCOL, writer_features=("appendOnly",))), "it holds another protocol"),
        (CommitActions(2, metadata=Metadata("other", SCHEMA, (), {}, 1)), "it holds another metaData"),
        (CommitActions(2, adds=[add("f2"), add("f3")]), "it lacks data file f3, which that version added"),
        (CommitActions(2, removes=[removed("f1")]), "it holds data file f1, which that version removed"),
        (CommitActions(2, txns=[Txn("app", 4)]), "it holds version 3 of transaction 'app', not 4"),
    ],
)
def test_what_differs_is_named(state: State, commit: CommitActions, reason: str) -> None:
    assert disagreement(state, commit) == reason


def test_removes_of_a_commit_that_is_not_whole_prove_nothing(state: State) -> None:
    assert disagreement(state, CommitActions(2, removes=[removed("f1")]), whole=False) is None


def test_the_head_of_a_commit_ends_with_a_line() -> None:
    line = b"x" * 99 + b"\n"
    assert first_lines(line * 3) == line * 3
    long = line * 3000
    head = long[: 1 << 18]
    assert first_lines(head) == line * ((1 << 18) // 100)
    assert first_lines(b"y" * (1 << 18)) == b""
