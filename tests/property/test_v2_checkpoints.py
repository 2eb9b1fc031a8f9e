"""v2 checkpoints against a plain model: whatever is kept, cut anew or left closed, the state is the replay's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alluvia.clock import ManualClock
from alluvia.delta.log.checkpoints import v2 as checkpoint_v2
from alluvia.delta.log.checkpoints.putting import put_v2_checkpoint
from alluvia.delta.log.checkpoints.reader import read_checkpoint
from alluvia.delta.log.checkpoints.writer import Form
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.replay import State, replay, totals
from alluvia.store import MemoryStore
from tests.examples import examples
from tests.property import actions
from tests.property.test_log import _as_model, _model

SMALL = 4


def check_checkpoints(commits: list[CommitActions], data: st.DataObject) -> None:
    clock = ManualClock(0)
    store = MemoryStore("m", clock)
    commits = with_one_time_a_file(commits)
    state = replay(None, commits[:1])
    with patch.object(checkpoint_v2, "SIDECAR_ROWS", SMALL):
        for commit in commits[1:]:
            state = replay(state, [commit])
            then = data.draw(st.sampled_from(["nothing", "nothing", "warm", "cold"]), label="then")
            if then != "nothing":
                written = put_v2_checkpoint(store, "", state, -(2**63), Form(), clock)
                state = written.state if then == "warm" else opened(store, commit.version)
                if data.draw(st.booleans(), label="sidecars are opened"):
                    check_sidecars(state)
    assert len(state.files) == len({file.key for file in state.files})
    assert list(state.files.keys()) == [file.key for file in state.files]
    assert totals(state) == (len(state.files), state.files.total("size"))
    assert _as_model(state) == _model(commits)


@pytest.mark.slow
@settings(max_examples=examples(50))
@given(actions.histories(commits_max=12), st.data())
def test_checkpoints_on_checkpoints_equal_the_replay_at_length(
    commits: list[CommitActions], data: st.DataObject
) -> None:
    check_checkpoints(commits, data)


def with_one_time_a_file(commits: list[CommitActions]) -> list[CommitActions]:
    """Return commits in which a file was made once, however often it is added."""
    times: dict[str, int] = {}
    found = []
    for commit in commits:
        adds = [
            replace(add, modification_time=times.setdefault(add.path, add.modification_time)) for add in commit.adds
        ]
        found.append(replace(commit, adds=adds))
    return found


def opened(store: MemoryStore, version: int) -> State:
    """Read the newest manifest of a version from the store."""
    prefix = f"_delta_log/{version:020d}.checkpoint."
    names = [info.key for info in store.list(prefix)]

    def fetch(wanted: Sequence[str]) -> list[bytes]:
        return [store.get(name) for name in wanted]

    return read_checkpoint(version, [(names[-1], store.get(names[-1]))], fetch)


def check_sidecars(state: State) -> None:
    """What a manifest says of a sidecar is what the sidecar holds."""
    parts: list[Any] = [*state.files.parts, *state.tombstones.parts]
    for part in parts:
        facts = part.file.facts
        assert facts.rows == len(part.keys) <= SMALL
        assert (facts.first_key, facts.last_key) == (min(part.keys.to_pylist()), max(part.keys.to_pylist()))
    assert len({part.file.name for part in parts}) == len(parts)
