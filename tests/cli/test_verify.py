"""verify as its user sees it: a report, JSON lines, progress on a terminal, and an exit status to rely on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from deltalake import write_deltalake

import alluvia
from alluvia.cli.command_line import cli
from tests.s3server import S3Server
from tests.unit.verify.damages import Hands, make_events


def run(hands: Hands, *words: str) -> Result:
    return CliRunner().invoke(cli, ["verify", "--lake", str(hands.lake), *words])


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_sound_table(hands: Hands) -> None:
    result = run(hands, "events")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[:2] == [
        "events: sound (no data file was opened; --full reads them)",
        "  version 8, readable from version 0; 9 commits and 1 checkpoint in the log",
    ]
    assert result.stdout.splitlines()[2].startswith("  6 data files, 12 rows, ")
    assert result.stdout.splitlines()[3] == "  0 orphans, 0 B"
    full = run(hands, "events", "--full")
    assert (full.exit_code, full.stderr) == (0, "")
    assert full.stdout.startswith("events: sound (every row was read)\n")


def test_a_damaged_table(hands: Hands) -> None:
    hands.data_file(8).unlink()
    hands.truncate(hands.commit(2), 10)
    (hands.root / "left.parquet").write_bytes(b"x")
    result = run(hands, "events")
    assert result.exit_code == 1
    assert result.stderr == "alluvia: table events is damaged: 2 damage, 1 note\n"
    assert result.stdout.startswith("events: 2 damage, 1 note (no data file was opened; --full reads them)\n")
    path = hands.data_file(8).relative_to(hands.root)
    shown = result.stdout.splitlines()
    assert f"damage   data-file-missing: data file {path} is missing" in shown
    assert any(
        line.startswith("damage   commit-unreadable: _delta_log/00000000000000000002.json, line") for line in shown
    )
    assert shown[-1].startswith("note     orphan-files: no version names 1 file (1 bytes in all)")


def test_json_lines(hands: Hands) -> None:
    hands.data_file(8).unlink()
    result = run(hands, "events", "--json")
    assert result.exit_code == 1
    finding, whole = lines(result)
    path = str(hands.data_file(8).relative_to(hands.root))
    assert finding == {
        "table": "events",
        "kind": "data-file-missing",
        "severity": "damage",
        "message": f"data file {path} is missing",
        "version": None,
        "file": path,
        "column": None,
    }
    counts = {"damages": 1, "warnings": 0, "notes": 0, "found": {"data-file-missing": 1}}
    facts = {"table": "events", "full": False, "version": 8, "oldest_version": 0, "versions": 9, "checkpoints": 1}
    assert {name: whole[name] for name in {**facts, **counts}} == {**facts, **counts}
    assert (whole["ok"], whole["files"], whole["rows"], whole["orphans"], whole["orphan_bytes"]) == (False, 6, 12, 0, 0)
    assert set(whole) == {*facts, *counts, "ok", "files", "rows", "bytes", "orphans", "orphan_bytes"}


def test_a_warning_does_not_fail(hands: Hands) -> None:
    (hands.log / "_last_checkpoint").unlink()
    result = run(hands, "events", "--json")
    assert result.exit_code == 0
    assert [line.get("kind") for line in lines(result)] == ["last-checkpoint-missing", None]
    assert lines(result)[-1]["ok"] is True


def test_many_findings_are_summed_up(hands: Hands) -> None:
    add = hands.first(8, "add")
    hands.add_commit(*({"add": {**add, "path": f"lost/{number}.parquet"}} for number in range(123)))
    result = run(hands, "events")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == "         data-file-missing: 23 more"
    assert result.stderr == "alluvia: table events is damaged: 123 damage\n"


def test_a_table_by_its_path(hands: Hands, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "Theirs"), pa.table({"x": [1]}))
    for words in ([str(tmp_path / "Theirs")], [(tmp_path / "Theirs").as_uri()], [str(hands.root), "--full"]):
        result = run(hands, *words)
        assert (result.exit_code, result.stderr) == (0, "")
    hands.commit(0).unlink()
    hands.checkpoint().unlink()
    assert run(hands, str(hands.root)).exit_code == 1


def test_over_s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = f"s3://{s3_server.new_bucket()}/lake"
    make_events(alluvia.connect(lake, **s3_server.options))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.options["access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.options["secret_access_key"])
    monkeypatch.setenv("AWS_REGION", s3_server.options["region"])
    endpoint = ["--endpoint-url", s3_server.endpoint_url]
    for words in (["events", "--lake", lake], [f"{lake}/events"]):
        result = CliRunner().invoke(cli, ["verify", *words, "--full", *endpoint])
        assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "alluvia: there is no table 'nothing'\n"),
        (["/nowhere/at/all"], "alluvia: there is no table 'all'\n"),
    ],
)
def test_a_table_that_is_not_there(hands: Hands, words: list[str], message: str) -> None:
    result = run(hands, *words)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", message)


def test_a_feature_that_cannot_be_read(hands: Hands) -> None:
    features = {"readerFeatures": ["catalogManaged"], "writerFeatures": ["catalogManaged"]}
    hands.add_commit({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
    result = run(hands, "events")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(
        "alluvia: table events: the table cannot be verified: the table has the reader feature catalogManaged"
    )


def test_wrong_usage(hands: Hands) -> None:
    assert run(hands).exit_code == 2
    assert run(hands, "events", "--quick").exit_code == 2
