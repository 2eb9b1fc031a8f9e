"""The log against a plain model: what goes in comes out, and a checkpoint changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.checkpoints.reader import read_checkpoint
from alluvia.delta.log.checkpoints.writer import write_checkpoint
from alluvia.delta.log.commit import CommitActions, encode_commit, parse_commit
from alluvia.delta.log.paths import decode_path, encode_path
from alluvia.delta.log.replay import State, replay
from tests.examples import examples
from tests.property import actions

Model = dict[str, Any]


@given(st.lists(actions.ADDS | actions.REMOVES | actions.TXNS | actions.DOMAINS, max_size=5), actions.PROTOCOLS,
       actions.METADATA, st.dictionaries(actions.NAME, actions.TEXT))  # fmt: skip
def test_every_action_comes_back_from_a_commit(several: list[Any], protocol: Any, metadata: Any, info: Any) -> None:
    data = encode_commit(info, [protocol, metadata, *several])
    found = parse_commit(7, data)
    assert data.count(b"\n") == 3 + len(several)
    assert (found.version, found.info, found.protocol, found.metadata) == (7, info, protocol, metadata)
    read = {type(each): list(found_) for found_ in (found.adds, found.removes, found.txns, found.domains)
            for each in found_}  # fmt: skip
    for kind in {type(each) for each in several}:
        assert read[kind] == [each for each in several if type(each) is kind]


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_path_is_encoded_once_and_decoded_once(path: str) -> None:
    uri = encode_path(path)
    assert decode_path(uri) == path
    assert uri.isascii()
    assert " " not in uri
    assert uri.count("%") >= path.count("%")


@settings(max_examples=examples(40))
@given(actions.histories(), st.data())
def test_a_checkpoint_at_any_version_equals_the_replay(commits: list[CommitActions], data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(commits)), label="commits before the checkpoint")
    keep_after = data.draw(st.sampled_from([-(2**63), 0]), label="tombstones after")
    state = _from_checkpoint(replay(None, commits[:at]), keep_after)
    again = data.draw(st.integers(at, len(commits)), label="commits before the second checkpoint")
    state = _from_checkpoint(replay(state, commits[at:again]), keep_after)
    state = replay(state, commits[again:])
    expected = _model(commits)
    found = _as_model(state)
    expired = {key for key, file in expected["tombstones"].items() if file.deletion_timestamp <= keep_after}
    kept = {key: file for key, file in expected["tombstones"].items() if key not in expired}
    assert {key: file for key, file in found["tombstones"].items() if key not in expired} == kept
    assert found | {"tombstones": None} == expected | {"tombstones": None}


@settings(max_examples=examples(40))
@given(actions.histories())
def test_replay_in_steps_equals_replay_at_once(commits: list[CommitActions]) -> None:
    state = replay(None, commits[:1])
    for commit in commits[1:]:
        state = replay(state, [commit])
    assert _as_model(state) == _as_model(replay(None, commits)) == _model(commits)
    assert state.version == len(commits) - 1
    assert state.timestamp_ms == 1000 + state.version


@settings(max_examples=examples(30))
@given(actions.histories())
def test_a_file_is_found_by_its_key(commits: list[CommitActions]) -> None:
    plain = replay(None, commits)
    loaded = _from_checkpoint(plain, -(2**63))
    assert len(plain.files) == len(loaded.files) == len(list(plain.files))
    for file in plain.files:
        assert plain.files.get(file.key) == file
        assert loaded.files.get(file.key) == replace(file, data_change=False)
    assert plain.files.get("no such key") is None
    assert loaded.files.get("no such key") is None


def _from_checkpoint(state: State, tombstones_after: int) -> State:
    data, rows = write_checkpoint(state, tombstones_after)
    live = [file for file in state.tombstones if file.deletion_timestamp > tombstones_after]
    assert rows == 2 + len(state.txns) + len(state.domains) + len(state.files) + len(live)
    return read_checkpoint(state.version, [("test.checkpoint.parquet", data)])


def _model(commits: list[CommitActions]) -> Model:
    """Reconcile actions the plain way."""
    model: Model = {"files": {}, "tombstones": {}, "txns": {}, "domains": {}}
    for commit in commits:
        model["protocol"] = commit.protocol or model.get("protocol")
        model["metadata"] = commit.metadata or model.get("metadata")
        for remove in commit.removes:
            model["files"].pop(remove.key, None)
            model["tombstones"][remove.key] = remove
        for add in commit.adds:
            model["files"][add.key] = replace(add, data_change=False)
            model["tombstones"].pop(add.key, None)
        model["txns"] |= {txn.app_id: txn for txn in commit.txns}
        for domain in commit.domains:
            model["domains"].pop(domain.domain, None)
            if not domain.removed:
                model["domains"][domain.domain] = domain
    return model


def _as_model(state: State) -> Model:
    files: list[AddFile] = list(state.files)
    return {
        "files": {file.key: replace(file, data_change=False) for file in files},
        "tombstones": {file.key: file for file in state.tombstones},
        "txns": dict(state.txns),
        "domains": dict(state.domains),
        "protocol": state.protocol,
        "metadata": state.metadata,
    }
