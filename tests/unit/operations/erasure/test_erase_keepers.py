"""Erasure and what keeps versions: nothing erased survives in a tag, and no tag loses what it may keep."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import alluvia
from alluvia.api.lake import Lake, Table
from alluvia.cli.command_line import cli
from alluvia.clock import ManualClock
from alluvia.delta.log.paths import commit_name
from alluvia.delta.refs import CLONE, KEPT
from alluvia.errors import Invalid
from alluvia.operations.references.pinned_versions import keep_version
from alluvia.store import CountingStore
from tests.erased import traces
from tests.judges import judges_agree

VICTIM = "mallory@example.org"
WHERE = f"u = '{VICTIM}'"


def row(user: str) -> dict[str, Any]:
    return {"u": user, "n": 1}


@pytest.fixture
def table(lake: Lake, clock: ManualClock) -> Table:
    """Version 1 has alice, version 2 the victim too, version 4 alice and bob."""
    table = lake.create_table("t", {"u": "string", "n": "long"}, sort_by=["u"])
    for user in ("alice", VICTIM):
        clock.advance(1)
        table.append([row(user)])
    clock.advance(1)
    table.delete(WHERE)
    clock.advance(1)
    table.append([row("bob")])
    return table


def users(table: Table, tag: str | None = None) -> list[str]:
    fresh = Lake(table.lake.store, table.lake.clock).table(table.name)
    return sorted(fresh.to_arrow(["u"], tag=tag)["u"].to_pylist())


def test_tags_of_versions_with_such_rows_are_named_before_anything_changes(table: Table, store: CountingStore) -> None:
    table.tag("holds", version=2)
    table.tag("clean", version=1)
    before = {info.key: info.etag for info in store.list("")}
    with pytest.raises(
        Invalid,
        match=r"erase: versions of t that are kept hold such rows, by tag holds of t: delete the tags, or erase with "
        r"release_tags=True \(--release-tags\)",
    ):
        table.erase(WHERE)
    assert {info.key: info.etag for info in store.list("")} == before


def test_tags_go_on_request_and_the_others_stay(table: Table) -> None:
    table.tag("holds", version=2)
    table.tag("before", version=1)
    table.tag("after", version=4)
    report = table.erase(WHERE, release_tags=True, prove=True)
    assert report.ok
    assert not traces(table.lake.store, VICTIM)
    assert [tag.name for tag in table.tags()] == ["after", "before"]
    assert (users(table, "before"), users(table, "after")) == (["alice"], ["alice", "bob"])
    table.vacuum(timedelta(0))
    assert (users(table, "before"), users(table, "after"), users(table)) == (
        ["alice"],
        ["alice", "bob"],
        ["alice", "bob"],
    )
    judges_agree(table, [1, 4, table.version])
    assert table.verify(full=True).ok


def test_a_version_outlives_the_checkpoint_that_it_was_made_of(lake: Lake, clock: ManualClock) -> None:
    table = lake.create_table("t", {"u": "string", "n": "long"}, sort_by=["u"])
    for user in ("alice", VICTIM):
        table.append([row(user)])
    table.checkpoint()
    clock.advance(60 * 86_400)
    table.delete(WHERE)
    table.tag("after")
    table.append([row("bob")])
    table.vacuum()
    assert min(table._handle.log.listing().commits) == 2
    assert table.erase(WHERE, prove=True).ok
    assert sorted(table._handle.log.listing().checkpoints)[0] == 3
    assert users(table, "after") == ["alice"]


def test_what_the_log_says_of_a_kept_file_stays(lake: Lake) -> None:
    """Bounds of other files that could have held the row go."""
    table = lake.create_table("t", {"u": "string", "n": "long"}, sort_by=["u"])
    table.append([row("alice"), row("zoe")])
    table.append([row(VICTIM)])
    table.optimize(full=True)
    table.tag("clean", version=1)
    before = lake.store.get(f"t/{commit_name(1)}")
    table.erase(WHERE)
    assert lake.store.get(f"t/{commit_name(1)}") == before
    assert users(table, "clean") == ["alice", "zoe"]


def test_a_row_that_a_deletion_vector_hides_counts(lake: Lake) -> None:
    table = lake.create_table("t", {"u": "string", "n": "long"}, properties={"delta.enableDeletionVectors": "true"})
    table.append([row("alice"), row(VICTIM)])
    table.delete(WHERE)
    table.tag("x")
    assert users(table, "x") == ["alice"]
    with pytest.raises(Invalid, match="by tag x of t"):
        table.erase(WHERE)


def test_clones_are_never_released(table: Table) -> None:
    keep_version(table._handle, CLONE, "dev", 2)
    table.tag("holds", version=2)
    with pytest.raises(Invalid, match="by clone dev of t: erase in the clones first, or drop them"):
        table.erase(WHERE, release_tags=True)
    assert [tag.name for tag in table.tags()] == ["holds"]


def test_a_tag_of_the_lake_means_the_same_after_an_erasure(lake: Lake, table: Table, clock: ManualClock) -> None:
    """An erasure writes commits again: by the store's clock, they are younger then."""
    table.append([row("carol")])
    clock.advance(1)
    lake.tag("release")
    clock.advance(1)
    table.append([row("dave")])
    assert table.erase(WHERE, prove=True).commits_redacted
    assert users(table, "release") == ["alice", "bob", "carol"]
    clock.advance(90 * 86_400)
    table.append([row("eve")])
    table.vacuum(timedelta(0))
    assert users(table, "release") == ["alice", "bob", "carol"]


def test_what_is_tagged_while_it_runs_is_not_lost(lake: Lake, store: CountingStore, clock: ManualClock) -> None:
    table = lake.create_table("t", {"u": "string", "n": "long"})
    table.append([row("alice")])
    table.append([row(VICTIM)])

    def come() -> None:
        Lake(store.inner, clock).table("t").tag("late", version=2)

    with pytest.raises(Invalid, match="by tag late of t"):
        erase_with(table, come)
    table.erase(WHERE, release_tags=True, prove=True)
    assert not traces(store, VICTIM)
    assert not list(store.list(KEPT))


def erase_with(table: Table, then: Callable[[], None]) -> None:
    from alluvia.events.ingest.erasing import erase_rows

    erase_rows(table.lake.catalog, table._handle, WHERE, before_removal=then)


def test_the_command_names_the_tags_and_takes_them(tmp_path: Path) -> None:
    table = alluvia.connect(tmp_path).create_table("t", {"u": "string", "n": "long"})
    table.append([row(VICTIM)])
    table.tag("x")
    words = ["erase", "--where", WHERE, "t", "--lake", str(tmp_path)]
    failed = CliRunner().invoke(cli, words)
    assert failed.exit_code == 1
    assert "by tag x of t: delete the tags" in failed.stderr
    done = CliRunner().invoke(cli, [*words, "--release-tags", "--prove"])
    assert done.exit_code == 0, done.output
    assert alluvia.connect(tmp_path).tags(tables=True) == []
