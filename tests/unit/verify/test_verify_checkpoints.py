"""Damage to checkpoints, their sidecars and the index of event ids: each kind is found by its own name and no other."""

from __future__ import annotations

import json
import shutil
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia.commit.event_window.id_runs import CommitIds
from alluvia.commit.event_window.index import read_index, write_index
from alluvia.commit.event_window.window import DedupWindow, WindowRules
from tests.unit.commit.event_window.old_window import old_index
from tests.unit.verify.damages import Action, Hands, codes, events, make_events


def row(rows: list[Action], kind: str) -> Any:
    return next(each[kind] for each in rows if each[kind])


def lack(kind: str) -> Callable[[list[Action]], list[Action]]:
    def change(rows: list[Action]) -> list[Action]:
        first = next(each for each in rows if each[kind])
        return [each for each in rows if each is not first]

    return change


def other_add(rows: list[Action]) -> list[Action]:
    return [*rows, {"add": {**row(rows, "add"), "path": "other.parquet", "deletionVector": None}}]


def removed_add(rows: list[Action]) -> list[Action]:
    add = next(each["add"] for each in rows if each["add"] and not each["add"]["deletionVector"])
    remove = {**row(rows, "remove"), "path": add["path"], "deletionVector": None}
    return [*rows, {"remove": remove}]


def other_remove(rows: list[Action]) -> list[Action]:
    return [*rows, {"remove": {**row(rows, "remove"), "path": "other.parquet"}}]


def set_in(kind: str, **fields: object) -> Callable[[list[Action]], None]:
    return lambda rows: row(rows, kind).update(fields)


def lying_json(rows: list[Action]) -> None:
    add = row(rows, "add")
    stats = json.loads(add["stats"])
    stats["maxValues"]["n"] = 0
    add["stats"] = json.dumps(stats)


def lying_struct(rows: list[Action]) -> None:
    row(rows, "add")["stats_parsed"]["maxValues"]["n"] = 0


def other_domain(rows: list[Action]) -> list[Action]:
    return [*rows, {"domainMetadata": {"domain": "d", "configuration": "c", "removed": False}}]


def other_property(rows: list[Action]) -> None:
    row(rows, "metaData")["configuration"] = [("delta.appendOnly", "true")]


DAMAGES: dict[str, tuple[Callable[[list[Action]], list[Action] | None], set[str]]] = {
    "a file is not in it": (lack("add"), {"checkpoint-lacks-file", "last-checkpoint-wrong"}),
    "a file too many": (other_add, {"checkpoint-extra-file", "last-checkpoint-wrong"}),
    "a file with another size": (set_in("add", size=1), {"checkpoint-file-differs"}),
    "a file with another time": (set_in("add", modificationTime=1), {"checkpoint-file-differs"}),
    "a file of another partition": (set_in("add", partitionValues=[("x", "1")]), {"checkpoint-file-differs"}),
    "other statistics": (lying_json, {"checkpoint-statistics-differ"}),
    "other statistics as a struct": (lying_struct, {"checkpoint-statistics-differ"}),
    "statistics of noise": (set_in("add", stats="{"), {"checkpoint-statistics-differ"}),
    "a tombstone is not in it": (lack("remove"), {"checkpoint-lacks-tombstone"}),
    "a tombstone too many": (other_remove, {"checkpoint-extra-tombstone"}),
    "a live file is removed, too": (removed_add, {"file-live-and-removed"}),
    "a transaction is not in it": (lack("txn"), {"checkpoint-transactions-differ"}),
    "an older transaction": (set_in("txn", version=0), {"checkpoint-transactions-differ"}),
    "a domain too many": (other_domain, {"checkpoint-domains-differ"}),
    "another protocol": (set_in("protocol", minWriterVersion=2, writerFeatures=None), {"checkpoint-protocol-differs"}),
    "other properties": (other_property, {"checkpoint-metadata-differs"}),
    "another table": (set_in("metaData", id="another"), {"checkpoint-metadata-differs"}),
    "no metadata": (lack("metaData"), {"checkpoint-unreadable"}),
    "a file without a path": (set_in("add", size=None), {"checkpoint-unreadable"}),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_checkpoint_that_lies(hands: Hands, name: str) -> None:
    change, found = DAMAGES[name]
    hands.edit_checkpoint(change)
    assert codes(hands.verify()) == found
    assert codes(hands.verify(full=True)) == found


def test_rewriting_a_checkpoint_as_it_is_is_no_damage(hands: Hands) -> None:
    hands.edit_checkpoint(lambda _: None)
    assert codes(hands.verify(full=True)) == set()


def test_a_truncated_checkpoint(hands: Hands) -> None:
    hands.truncate(hands.checkpoint(), 100)
    assert codes(hands.verify()) == {"checkpoint-unreadable"}


def test_a_checkpoint_that_everything_stands_on(hands: Hands) -> None:
    for version in range(6):
        hands.commit(version).unlink()
    sound = hands.verify(full=True)
    assert (sound.ok, sound.oldest_version, sound.files, sound.rows, codes(sound)) == (True, 5, 6, 12, set())
    hands.truncate(hands.checkpoint(), 100)
    report = hands.verify(full=True)
    assert codes(report) == {"checkpoint-unreadable"}
    assert (report.version, report.oldest_version, report.files) == (8, None, 0)


def test_the_oldest_checkpoint_is_held_against_its_own_commit(hands: Hands) -> None:
    for version in range(5):
        hands.commit(version).unlink()
    assert codes(hands.verify()) == set()
    hands.edit_checkpoint(lambda rows: [each for each in rows if not (each["add"] or {}).get("deletionVector")])
    report = hands.verify()
    assert codes(report) == {"checkpoint-contradicts-commit", "last-checkpoint-wrong", "orphan-files"}


def test_each_checkpoint_is_held_against_the_one_before(hands: Hands) -> None:
    hands.table().checkpoint()
    for version in range(5):
        hands.commit(version).unlink()
    assert codes(hands.verify()) == set()
    hands.edit_checkpoint(lack("add"))
    report = hands.verify()
    assert codes(report) == {"checkpoint-lacks-file", "last-checkpoint-wrong"}
    assert {finding.version for finding in report.findings} == {8}


def v2(tmp_path: Path) -> Hands:
    lake = alluvia.connect(str(tmp_path / "v2"))
    properties = {"delta.checkpointPolicy": "v2"}
    table = lake.create_table("events", {"x": "long", "place": "string"}, partition_by=["place"], properties=properties)
    for number in range(4):
        table.append([{"x": number, "place": "ab"[number % 2]}])
    table.delete("x = 1")
    table.checkpoint()
    table.append([{"x": 9, "place": "a"}])
    hands = Hands(tmp_path / "v2")
    assert codes(hands.verify(full=True)) == set()
    return hands


def sidecar(hands: Hands, kind: str) -> Path:
    found = (hands.log / "_sidecars").glob("*.parquet")
    return next(path for path in found if kind in pq.read_schema(path).names)


def rewrite_sidecar(hands: Hands, change: Callable[[list[Action]], list[Action]]) -> None:
    """Change the rows of the adds' sidecar, and its size in the checkpoint."""
    path = sidecar(hands, "add")
    rows = pq.read_table(path)
    pq.write_table(pa.Table.from_pylist(change(rows.to_pylist()), schema=rows.schema), path)
    manifest = hands.checkpoint()

    def resize(rows: list[Action]) -> None:
        action = next(each["sidecar"] for each in rows if each["sidecar"] and each["sidecar"]["path"] == path.name)
        action["sizeInBytes"] = path.stat().st_size

    hands.edit_checkpoint(resize, manifest)


def test_a_missing_sidecar(tmp_path: Path) -> None:
    hands = v2(tmp_path)
    sidecar(hands, "add").unlink()
    assert codes(hands.verify()) == {"sidecar-missing"}


def test_a_truncated_sidecar(tmp_path: Path) -> None:
    hands = v2(tmp_path)
    hands.truncate(sidecar(hands, "remove"), 50)
    assert codes(hands.verify()) == {"sidecar-size-wrong", "sidecar-unreadable"}


def test_a_sidecar_with_fewer_files(tmp_path: Path) -> None:
    hands = v2(tmp_path)
    rewrite_sidecar(hands, lambda rows: rows[1:])
    assert codes(hands.verify()) == {"sidecar-facts-wrong", "checkpoint-lacks-file"}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda facts: facts.update(rows=3), "it is said to hold 3 files, and holds 4"),
        (lambda facts: facts.update(lastKey="a"), "its files are said to go from"),
        (lambda facts: facts.update(size=1), "its files are said to have 1 bytes"),
        (lambda facts: facts.update(kind="remove"), "it is said to hold nothing but remove actions"),
        (lambda facts: facts["statistics"]["maxValues"].update(x=8), "the values of x in place=a/"),
        (lambda facts: facts.update(statistics="noise"), "the statistics of its files together cannot be read"),
    ],
)
def test_facts_of_a_sidecar_that_are_none(tmp_path: Path, change: Callable[[Action], None], what: str) -> None:
    hands = v2(tmp_path)
    hands.table().checkpoint()

    def lie(rows: list[Action]) -> None:
        for each in rows:
            tags = dict(each["sidecar"]["tags"]) if each["sidecar"] else {}
            facts = json.loads(tags.get("alluvia.facts", "{}"))
            if facts.get("kind") == "add":
                facts["statistics"] = json.loads(facts["statistics"])
                change(facts)
                if not isinstance(facts["statistics"], str):
                    facts["statistics"] = json.dumps(facts["statistics"])
                each["sidecar"]["tags"] = [("alluvia.facts", json.dumps(facts))]

    hands.edit_checkpoint(lie)
    found = [finding for finding in hands.verify().findings if finding.kind == "sidecar-facts-wrong"]
    assert len(found) == 1
    assert what in found[0].message


def test_a_sidecar_that_nothing_names_is_no_damage(tmp_path: Path) -> None:
    hands = v2(tmp_path)
    shutil.copy(sidecar(hands, "add"), hands.log / "_sidecars" / "left.parquet")
    report = hands.verify()
    assert (report.ok, codes(report)) == (True, {"orphan-sidecars"})


def index(hands: Hands) -> Path:
    return hands.root / "_alluvia" / "window" / f"{5:020d}.arrow"


def test_an_index_of_event_ids_of_noise(hands: Hands) -> None:
    index(hands).write_bytes(b"noise")
    assert codes(hands.verify()) == {"window-index-unreadable"}


def test_an_index_that_lacks_events(hands: Hands) -> None:
    index(hands).write_bytes(write_index(DedupWindow(WindowRules(1))))
    report = hands.verify()
    assert codes(report) == {"window-index-wrong"}
    assert [finding.message.partition(": ")[2] for finding in report.findings] == [
        f"it lacks the events of version {version}" for version in (1, 2, 3)
    ]


def test_an_index_with_other_events(hands: Hands) -> None:
    window = DedupWindow(WindowRules(1 << 60))
    for version in (1, 2, 3, 8):
        time = hands.first(version, "commitInfo")["inCommitTimestamp"]
        window.add(CommitIds(version, time, bytes(12), bytes(4)))
    index(hands).write_bytes(write_index(window))
    report = hands.verify()
    assert codes(report) == {"window-index-wrong"}
    assert report.found["window-index-wrong"] == 4


def test_an_index_of_an_earlier_version_is_no_damage(hands: Hands) -> None:
    """It has no contents, also where the commits have."""
    infos = [(version, hands.first(version, "commitInfo")) for version in (1, 2, 3)]
    commits = [(version, info["inCommitTimestamp"], b64decode(info["alluviaEventIds"])) for version, info in infos]
    index(hands).write_bytes(old_index(commits))
    assert codes(hands.verify()) == set()
    index(hands).write_bytes(old_index([*commits[:2], (*commits[2][:2], commits[1][2])]))
    assert codes(hands.verify()) == {"window-index-wrong"}


def test_an_index_with_other_contents(hands: Hands) -> None:
    window = read_index(index(hands).read_bytes(), "x", WindowRules(1 << 60), 5)
    other = DedupWindow(WindowRules(1 << 60))
    for ids in window.entries():
        other.add(replace(ids, contents=b"\1" * len(ids.contents)))
    index(hands).write_bytes(write_index(other))
    report = hands.verify()
    assert (codes(report), report.found["window-index-wrong"]) == ({"window-index-wrong"}, 3)


def test_a_missing_index_is_a_warning(hands: Hands) -> None:
    index(hands).unlink()
    report = hands.verify()
    assert (report.ok, codes(report)) == (True, {"window-index-missing"})


def test_events_beyond_the_window_need_not_be_in_the_index(tmp_path: Path) -> None:
    lake = alluvia.connect(str(tmp_path / "lake"))
    table = make_events(lake, **{"alluvia.dedup_window": "1 millisecond"})
    table.ingest(events(100))
    table.checkpoint()
    table.evolve(properties={"alluvia.dedup_window": "2 days"})
    table.ingest(events(101))
    table.checkpoint()
    assert codes(Hands(tmp_path / "lake").verify(full=True)) == set()


def test_structs_of_older_checkpoints_are_looked_at_in_full_mode(hands: Hands) -> None:
    older = hands.checkpoint()
    hands.table().checkpoint()
    hands.edit_checkpoint(lying_struct, older)
    assert codes(hands.verify()) == set()
    assert codes(hands.verify(full=True)) == {"checkpoint-statistics-differ"}
