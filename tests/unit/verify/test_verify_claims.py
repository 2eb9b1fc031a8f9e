"""Verifying tables that transactions over several tables have claimed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import alluvia
from alluvia.api.lake import Lake
from alluvia.commit.intents import CLAIM
from tests.transactions import APPLY_OF_A, APPLY_OF_B, DECISION, append_both, filled, stopped, transfer
from tests.unit.verify.damages import Hands, codes

HOUR_MS = 3_600_000
FOLDER = "_alluvia/transactions"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return filled(alluvia.connect(str(tmp_path / "lake")))


def hands(lake: Lake, tmp_path: Path, name: str) -> Hands:
    return Hands(tmp_path / "lake", name)


def edit_claim(hands: Hands, change: Callable[[dict[str, object]], object]) -> None:
    """Change what the claim in the newest commit says."""

    def edit(actions: list[dict[str, dict[str, object]]]) -> None:
        domain = next(each["domainMetadata"] for each in actions if "domainMetadata" in each)
        body = json.loads(str(domain["configuration"]))
        change(body)
        domain["configuration"] = json.dumps(body)

    hands.edit(hands.newest, edit)


@pytest.mark.parametrize("before", [DECISION, APPLY_OF_A, APPLY_OF_B])
@pytest.mark.parametrize("act", [transfer, append_both])
def test_a_transaction_that_is_under_way_is_nothing_to_report(
    lake: Lake, before: int, act: Callable[[Lake], None]
) -> None:
    stopped(lake, before, act)
    for name in ("a", "b"):
        for full in (False, True):
            report = lake.table(name).verify(full=full)
            assert (report.ok, report.findings) == (True, ())
            assert report.rows == lake.table(name).count()


@pytest.mark.parametrize(("before", "end"), [(DECISION, "has not ended"), (APPLY_OF_A, "has happened")])
def test_a_claim_that_stands_for_hours_is_a_note(lake: Lake, tmp_path: Path, before: int, end: str) -> None:
    stopped(lake, before)
    damaged = hands(lake, tmp_path, "b")
    edit_claim(damaged, lambda body: body.update(startedMs=int(str(body["startedMs"])) - 2 * HOUR_MS))
    report = damaged.verify(full=True)
    [finding] = report.findings
    assert (report.ok, finding.kind, finding.version) == (True, "claim-stands", damaged.newest)
    assert "over a, b" in finding.message
    assert end in finding.message


@pytest.mark.parametrize("text", ["{", "[]", '{"table": "a"}', json.dumps({"commit": "x"})])
def test_a_claim_that_cannot_be_read(lake: Lake, tmp_path: Path, text: str) -> None:
    damaged = hands(lake, tmp_path, "a")
    damaged.add_commit({"domainMetadata": {"domain": f"{CLAIM}x", "configuration": text, "removed": False}})
    assert codes(damaged.verify()) == codes(damaged.verify(full=True)) == {"claim-unreadable"}


def test_a_claim_of_a_commit_that_cannot_be_read(lake: Lake, tmp_path: Path) -> None:
    stopped(lake, DECISION)
    damaged = hands(lake, tmp_path, "a")
    edit_claim(damaged, lambda body: body.update(commit='{"add": 5}'))
    assert codes(damaged.verify()) == {"claim-unreadable", "orphan-files"}


def test_a_file_that_a_transaction_added_and_that_is_gone(lake: Lake, tmp_path: Path) -> None:
    stopped(lake, APPLY_OF_A, append_both)
    damaged = hands(lake, tmp_path, "a")
    newest = max(damaged.root.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    newest.unlink()
    assert codes(damaged.verify()) == codes(damaged.verify(full=True)) == {"data-file-missing"}


def test_a_file_that_a_transaction_removes_and_that_is_not_there(lake: Lake, tmp_path: Path) -> None:
    stopped(lake, APPLY_OF_A)
    damaged = hands(lake, tmp_path, "a")
    edit_claim(
        damaged,
        lambda body: body.update(commit=str(body["commit"]).replace('"remove":{"path":"', '"remove":{"path":"x')),
    )
    assert "remove-of-absent-file" in codes(damaged.verify())


def test_decisions_that_cannot_be_read(lake: Lake, tmp_path: Path) -> None:
    stopped(lake, APPLY_OF_A)
    [decision] = (tmp_path / "lake" / "a" / FOLDER).iterdir()
    decision.write_text("{")
    report = lake.table("a").verify()
    [finding] = report.findings
    assert (report.ok, finding.kind, finding.file) == (False, "decision-unreadable", f"{FOLDER}/{decision.name}")
    [finding] = lake.table("b").verify().findings
    assert (finding.kind, finding.version) == ("decision-unreadable", lake.table("b").version)


def test_a_copy_of_a_table_cannot_tell_what_has_happened(lake: Lake, tmp_path: Path) -> None:
    stopped(lake, APPLY_OF_A, append_both)
    shutil.copytree(tmp_path / "lake" / "b", tmp_path / "copy")
    report = alluvia.open_table(str(tmp_path / "copy")).verify(full=True)
    assert (report.ok, codes(report), report.rows) == (True, {"claim-unchecked"}, 2)
