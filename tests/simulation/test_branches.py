"""Branches hold among interruptions, and each rule that keeps them so is missed where it is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from alluvia.lake_branch import Branch
from alluvia.operations import branch_publish
from alluvia.operations.branch_changes import BranchedTable
from alluvia.operations.branch_store import BranchStore
from alluvia.operations.kept_files import KeptFiles
from tests.examples import examples
from tests.light_engines import light_engines
from tests.simulation.branches import broken

SEEDS = range(4)
MORE_SEEDS = range(4, 4 + examples(8))
MUTANT_SEEDS = 30


@pytest.fixture(scope="module", autouse=True)
def _light() -> Iterator[None]:
    with light_engines(one_at_a_time=True):
        yield


def test_some_seeds_hold() -> None:
    assert [wrong for seed in SEEDS if (wrong := broken(seed))] == []


@pytest.mark.slow
def test_more_seeds_hold() -> None:
    assert [wrong for seed in MORE_SEEDS if (wrong := broken(seed))] == []


def _newest(branch: Branch, table: str) -> int:
    return branch.main.handle(table).newest(dropped=True).version


MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "vacuum does not look for keepers": (KeptFiles, "look", lambda *_: False),
    "a branch begins with what the lake holds when a table is used first": (Branch, "_base_of", _newest),
    "files are not copied": (branch_publish, "_own_files", lambda *_: iter(())),
    "a branch counts as having read nothing": (BranchedTable, "reads", lambda _: (None, frozenset())),
    "a file's name does not say whose it is": (BranchStore, "place", lambda _, key: key),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_rule_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, instead = MUTANTS[mutant]
    changed: Callable[..., Any] = instead
    monkeypatch.setattr(owner, name, changed)
    assert any(broken(seed) for seed in range(MUTANT_SEEDS)), f"nothing was wrong although {mutant}"
