"""Damage to a table's log: each kind is inflicted on a real table, and found by its own name and no other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import alluvia
from alluvia.errors import Unsupported
from alluvia.verify.report import Severity
from tests.unit.verify.damages import Action, Hands, codes, events, make_events

PARTIAL = {"verification-incomplete"}


@dataclass(frozen=True)
class Damage:
    """What is done to the table, and the kinds of what is found then, in both modes."""

    name: str
    inflict: Callable[[Hands], object]
    found: set[str]

    def __str__(self) -> str:
        return self.name


def remove_action(hands: Hands, version: int, kind: str) -> None:
    hands.edit(version, lambda actions: actions.remove(next(each for each in actions if kind in each)))


def commit_again(hands: Hands) -> None:
    shutil.copy(hands.commit(8), hands.commit(9))


def set_info(hands: Hands, version: int, **fields: object) -> None:
    hands.edit(version, lambda actions: actions[0]["commitInfo"].update(fields))


def set_property(hands: Hands, name: str, text: str) -> None:
    metadata = hands.first(0, "metaData")
    metadata["configuration"][name] = text
    hands.add_commit({"metaData": metadata})


def drop_newest(hands: Hands) -> None:
    for version in (4, 5, 6, 7, 8):
        hands.commit(version).unlink()


def vanish_bases(hands: Hands) -> None:
    """Leave a log that neither begins nor has a checkpoint."""
    hands.commit(0).unlink()
    hands.checkpoint().unlink()
    (hands.log / "_last_checkpoint").unlink()


def empty_log(hands: Hands) -> None:
    for path in hands.log.iterdir():
        path.unlink()
    (hands.log / "_last_checkpoint").write_text('{"version": 5}')


def future(hands: Hands) -> None:
    version = hands.add_commit()
    set_info(hands, version, inCommitTimestamp=4_000_000_000_000)
    version = hands.add_commit()
    set_info(hands, version, inCommitTimestamp=4_000_000_000_001)


def ghost_remove(hands: Hands) -> None:
    hands.add_commit({"remove": {"path": "ghost", "deletionTimestamp": 1, "dataChange": True}})


DAMAGES = [
    Damage("a commit in the middle is gone", lambda h: h.commit(7).unlink(), {"commit-missing", *PARTIAL}),
    Damage("a commit before the checkpoint is gone", lambda h: h.commit(3).unlink(), {"commit-missing"}),
    Damage(
        "the newest commits are gone",
        drop_newest,
        {"commit-missing", "orphan-files"},
    ),
    Damage("a log without a beginning", vanish_bases, {"commit-missing"}),
    Damage("an empty log", empty_log, {"log-empty"}),
    Damage("a truncated commit", lambda h: h.truncate(h.commit(8), 30), {"commit-unreadable", *PARTIAL}),
    Damage("a truncated commit below the checkpoint", lambda h: h.truncate(h.commit(2), 30), {"commit-unreadable"}),
    Damage("an empty commit", lambda h: h.commit(8).write_text(""), {"commit-unreadable", *PARTIAL}),
    Damage("a commit of noise", lambda h: h.commit(8).write_bytes(b"\xff\x00" * 99), {"commit-unreadable", *PARTIAL}),
    Damage("a commit that lost its last line", lambda h: h.edit(8, list.pop), {"commit-incomplete", "orphan-files"}),
    Damage("one transaction twice", commit_again, {"transaction-repeated", "timestamp-not-increasing"}),
    Damage("two commits in one file", lambda h: h.edit(8, lambda a: a.insert(1, a[0])), {"actions-clash"}),
    Damage(
        "an add twice in a commit",
        lambda h: h.edit(8, lambda a: a.append(a[-1])),
        {"actions-clash", "commit-incomplete"},
    ),
    Damage(
        "time stands still",
        lambda h: set_info(h, 8, inCommitTimestamp=h.first(7, "commitInfo")["inCommitTimestamp"]),
        {"timestamp-not-increasing"},
    ),
    Damage(
        "a commit without its time",
        lambda h: h.edit(8, lambda a: a[0]["commitInfo"].pop("inCommitTimestamp")),
        {"timestamp-missing"},
    ),
    Damage("commitInfo comes last", lambda h: h.edit(8, lambda a: a.append(a.pop(0))), {"commit-info-not-first"}),
    Damage("commits of the far future", future, {"timestamp-in-future"}),
    Damage(
        "a property that is no number",
        lambda h: set_property(h, "delta.checkpointInterval", "often"),
        {"property-unreadable"},
    ),
    Damage(
        "properties of dropped tables",
        lambda h: set_property(h, "alluvia.version_gaps", "[1]"),
        {"property-unreadable"},
    ),
    Damage("event ids that are no base64", lambda h: set_info(h, 8, alluviaEventIds="%%%"), {"event-ids-unreadable"}),
    Damage("a remove of what is not there", ghost_remove, {"remove-of-absent-file"}),
    Damage("a hint of noise", lambda h: (h.log / "_last_checkpoint").write_text("{"), {"last-checkpoint-unreadable"}),
    Damage(
        "a hint at no checkpoint",
        lambda h: (h.log / "_last_checkpoint").write_text('{"version": 4}'),
        {"last-checkpoint-wrong"},
    ),
    Damage(
        "a hint that miscounts",
        lambda h: (h.log / "_last_checkpoint").write_text('{"version": 5, "numOfAddFiles": 3}'),
        {"last-checkpoint-wrong"},
    ),
    Damage(
        "a hint of parts",
        lambda h: (h.log / "_last_checkpoint").write_text('{"version": 5, "parts": 2}'),
        {"last-checkpoint-wrong"},
    ),
    Damage("no hint", lambda h: (h.log / "_last_checkpoint").unlink(), {"last-checkpoint-missing"}),
    Damage(
        "half of a checkpoint",
        lambda h: (h.log / f"{7:020d}.checkpoint.{1:010d}.{2:010d}.parquet").write_text("x"),
        {"checkpoint-incomplete"},
    ),
]


@pytest.mark.parametrize("full", [False, True], ids=["quick", "full"])
def test_the_sound_table_is_sound(hands: Hands, full: bool) -> None:
    report = hands.verify(full=full)
    assert (report.ok, report.findings, report.found) == (True, (), {})
    assert (report.version, report.oldest_version, report.versions, report.checkpoints) == (8, 0, 9, 1)
    assert (report.files, report.rows, report.orphans, report.full) == (6, 12, 0, full)
    assert report.bytes == sum(path.stat().st_size for path in hands.root.glob("ts_day=*/*.parquet"))


@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_damage_is_found_by_name(hands: Hands, damage: Damage) -> None:
    damage.inflict(hands)
    quick = hands.verify()
    assert codes(quick) == damage.found
    assert quick.ok == all(finding.severity is not Severity.DAMAGE for finding in quick.findings)
    assert codes(hands.verify(full=True)) == damage.found


@pytest.mark.parametrize(("kind", "found"), [("protocol", "protocol-missing"), ("metaData", "metadata-missing")])
def test_a_table_that_does_not_begin(hands: Hands, kind: str, found: str) -> None:
    hands.checkpoint().unlink()
    (hands.log / "_last_checkpoint").unlink()
    remove_action(hands, 0, kind)
    report = hands.verify(full=True)
    assert codes(report) == {found}
    assert not report.ok


@pytest.mark.parametrize("text", ["", "{", '{"type": "struct", "fields": 5}'])
def test_a_schema_that_cannot_be_read(hands: Hands, text: str) -> None:
    metadata = hands.first(0, "metaData")
    hands.add_commit({"metaData": {**metadata, "schemaString": text}})
    assert codes(hands.verify()) == codes(hands.verify(full=True)) == {"schema-unreadable"}


def test_a_feature_that_cannot_be_read_refuses_to_verify(hands: Hands) -> None:
    features = {"readerFeatures": ["catalogManaged"], "writerFeatures": ["catalogManaged"]}
    hands.add_commit({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
    with pytest.raises(Unsupported, match="catalogManaged"):
        hands.verify()


def test_reader_version_3_without_features(hands: Hands) -> None:
    hands.add_commit({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7}})
    assert codes(hands.verify()) == {"protocol-unreadable"}


def test_files_that_a_lost_commit_may_have_removed_are_a_warning(tmp_path: Path) -> None:
    table = make_events(alluvia.connect(str(tmp_path)), **{"delta.checkpointInterval": "100"})
    hands = Hands(tmp_path)
    merged = table.optimize(full=True)
    table.ingest(events(30))
    hands.data_file(4).unlink()
    assert codes(hands.verify()) == {"tombstone-file-missing"}
    assert merged.version == 10
    for version in (9, 10):
        hands.commit(version).write_text("")
    report = hands.verify(full=True)
    assert codes(report) == {"commit-unreadable", "verification-incomplete", "data-file-gone"}
    assert (report.version, report.files, report.rows) == (11, 7, None)


def test_findings_say_where(hands: Hands) -> None:
    hands.commit(7).unlink()
    hands.truncate(hands.commit(2), 30)
    missing, unreadable = sorted(hands.verify().findings[:2], key=lambda finding: finding.kind)
    assert (missing.kind, missing.version, missing.severity) == ("commit-missing", 7, Severity.DAMAGE)
    assert missing.message == "commit 7 is missing from the log, which goes on to version 8"
    assert (unreadable.version, unreadable.file) == (2, "_delta_log/00000000000000000002.json")


def test_a_number_beyond_all_versions_is_no_reason_to_count_to_it(hands: Hands) -> None:
    hands.commit(2**63 - 1).write_text(json.dumps({"commitInfo": {}}) + "\n")
    report = hands.verify()
    assert codes(report) == {"commit-missing", *PARTIAL}
    assert report.findings[0].message.startswith("commits 9 to 9223372036854775806 are missing")


def test_leftovers_of_an_unfinished_cleanup_are_no_damage(hands: Hands) -> None:
    for version in (0, 1, 2):
        hands.commit(version).unlink()
    report = hands.verify(full=True)
    assert (report.ok, codes(report), report.oldest_version) == (True, {"commits-expired"}, 5)


def test_many_findings_of_a_kind_are_counted(hands: Hands) -> None:
    adds: list[Action] = [{"add": {**hands.first(8, "add"), "path": f"lost/{n}.parquet"}} for n in range(150)]
    hands.add_commit(*adds)
    report = hands.verify()
    assert report.found == {"data-file-missing": 150}
    assert len(report.findings) == 100
    assert report.count(Severity.DAMAGE) == 150
