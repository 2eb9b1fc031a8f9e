"""The command line as its user sees it: output, exit codes, one clear line for an error."""

from __future__ import annotations

import gzip
import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import alluvia
from alluvia.cli.command_line import cli
from alluvia.operations.results.results import KeptResult, forget_result, keep_result

DATA = Path(__file__).parents[2] / "events" / "data" / "access_log.ndjson.gz"


class Shell:
    def __init__(self, lake: Path) -> None:
        self.lake = lake

    def run(self, *words: str, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(cli, [words[0], "--lake", str(self.lake), *words[1:]], input=stdin)

    def rows(self, *words: str, stdin: bytes | None = None) -> list[dict[str, Any]]:
        result = self.run(*words, "--json", stdin=stdin)
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "lake")


def lines(count: int) -> bytes:
    return b"\n".join(json.dumps({"event_id": f"e{at}", "event": "e", "n": at}).encode() for at in range(count))


def test_a_real_file_goes_in_and_again_changes_nothing(shell: Shell) -> None:
    assert shell.run("create", "requests", "--column", "status:long", "--column", "path:string").exit_code == 0
    first = shell.rows("ingest", "requests", str(DATA))[0]
    assert (first["accepted"], first["duplicates"], first["rejected"]) == (9999, 0, 0)
    again = shell.rows("ingest", "requests", str(DATA))[0]
    assert (again["accepted"], again["duplicates"]) == (9999, 9999)
    answer = shell.rows("query", "SELECT status, count(*) AS n FROM requests WHERE status = 404 GROUP BY status")
    expected = sum(json.loads(line)["status"] == 404 for line in gzip.decompress(DATA.read_bytes()).splitlines())
    assert answer == [{"status": 404, "n": expected}]


def test_a_table_is_clustered(shell: Shell) -> None:
    words = ("--column", "status:long", "--cluster-by", "status", "--cluster-by", "ts")
    assert shell.run("create", "requests", *words).exit_code == 0
    [facts] = shell.rows("describe", "requests")
    assert (facts["cluster_by"], facts["sort_by"]) == (["status", "ts"], [])


def test_events_without_ids_are_known_again_by_their_batch(shell: Shell) -> None:
    body = b'{"event":"a"}\n{"event":"a"}\n'
    assert shell.rows("ingest", "t", "-", stdin=body)[0]["accepted"] == 2
    assert shell.rows("ingest", "t", "-", stdin=body)[0]["duplicates"] == 2
    assert shell.rows("query", "SELECT count(*) AS n FROM t") == [{"n": 2}]


@pytest.mark.parametrize(
    ("body", "accepted", "rejected"),
    [
        (b'[{"event":"a"},{"event":"b"}]', 2, 0),
        (b'{\n "event": "a"\n}', 1, 0),
        (b'{"event":"a"}\n{"event":\n{"event":"c"}\n', 2, 1),
        (gzip.compress(b'{"event":"a"}\n{"event":"b"}', mtime=0), 2, 0),
    ],
    ids=["array", "one object over lines", "lines, one broken", "gzip"],
)
def test_forms_of_a_file(shell: Shell, body: bytes, accepted: int, rejected: int) -> None:
    report = shell.rows("ingest", "t", "-", stdin=body)[0]
    assert (report["accepted"], report["rejected"]) == (accepted, rejected)
    if rejected:
        assert shell.rows("query", "SELECT count(*) AS n FROM t._rejects") == [{"n": rejected}]


def test_a_file_of_which_nothing_is_accepted(shell: Shell, tmp_path: Path) -> None:
    bad, good = tmp_path / "bad.json", tmp_path / "good.json"
    bad.write_text("not json")
    good.write_text('{"event_id":"a"}')
    result = shell.run("ingest", "t", str(bad), "--json")
    assert (result.exit_code, json.loads(result.stdout)["rejected"]) == (1, 1)
    assert result.stderr.splitlines() == [
        "the rejected events are kept, with reasons, in t._rejects",
        "alluvia: no event was accepted",
    ]
    assert shell.rows("query", "SELECT count(*) AS n FROM t._rejects") == [{"n": 1}]
    assert [row["accepted"] for row in shell.rows("ingest", "t", str(bad), str(good))] == [0, 1]
    assert shell.run("ingest", "t", str(good)).exit_code == 0


def test_a_broken_gzip_file_is_one_clear_line(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "cut.gz").write_bytes(gzip.compress(lines(1000))[:-20])
    result = shell.run("ingest", "t", str(tmp_path / "cut.gz"))
    assert result.exit_code == 1
    assert "gzip data is damaged" in result.stderr
    assert "Traceback" not in result.output


def test_rows_expire_by_command_and_before_vacuum(shell: Shell) -> None:
    assert shell.run("create", "t", "--property", "alluvia.ttl=90 days").exit_code == 0
    for day in ("2024-01-01", "2024-01-02", "2999-01-01"):
        shell.rows("ingest", "t", "-", stdin=json.dumps({"event_id": day, "ts": day, "event": "e"}).encode())
    plan = shell.rows("expire", "t", "--dry-run")[0]
    assert (plan["dry_run"], plan["rows"], plan["column"], len(plan["files"])) == (True, 2, "ts", 2)
    assert len(shell.rows("files", "t")) == 3
    assert not shell.rows("files", "t", "--where", "ts > '9999-01-01'")
    assert "would_expire" in shell.run("expire", "--dry-run").stdout
    shell.rows("optimize")
    done = shell.rows("vacuum", "t", "--dry-run")[0]
    assert (len(done["expired"]), len(shell.rows("files", "t"))) == (2, 3)
    assert len(shell.rows("vacuum", "t")[0]["expired"]) == 2
    assert [row["rows"] for row in shell.rows("files", "t")] == [1]
    assert shell.rows("changes", "t", "--from", "4") == []
    assert {row["_change_type"] for row in shell.rows("changes", "t", "--from", "4", "--expired")} == {"expire"}
    assert shell.rows("expire")[0]["files"] == []


def test_merge_vacuum_history_files_and_time_travel(shell: Shell) -> None:
    for at in range(5):
        shell.rows(
            "ingest", "t", "-", stdin=json.dumps({"event_id": str(at), "ts": "2026-01-01", "event": "e"}).encode()
        )
    assert len(shell.rows("files", "t")) == 5
    merged = {row["table"]: row for row in shell.rows("optimize")}
    assert (merged["t"]["files_before"], merged["t"]["files_after"]) == (5, 1)
    assert [row["operation"] for row in shell.rows("history", "t", "--limit", "2")] == ["OPTIMIZE", "WRITE"]
    assert [row["rows_written"] for row in shell.rows("history", "t", "--limit", "2")] == [5, 1]
    assert [row["rows"] for row in shell.rows("query", "SELECT rows FROM history('t', limit => 2)")] == [5, 5]
    assert len(shell.rows("files", "t", "--version", "3")) == 3
    assert len(shell.rows("vacuum", "--retention", "0s", "--dry-run")[0]["data_files"]) == 5
    assert len(shell.rows("vacuum", "t", "--retention", "0s", "--yes")[0]["data_files"]) == 5
    expired = shell.run("files", "t", "--version", "3")
    assert expired.exit_code == 1
    assert "oldest version that can be read is 6" in expired.stderr
    assert shell.rows("query", "SELECT count(*) AS n FROM t") == [{"n": 5}]
    assert shell.rows("checkpoint", "t")[0]["version"] == 7


def test_describe_and_tables(shell: Shell) -> None:
    words = ("--column", "seats:long", "--required", "seats", "--partition-by", "hour(ts)")
    assert shell.run("create", "signups", *words).exit_code == 0
    described = shell.rows("describe", "signups")[0]
    assert described["partition_by"] == ["hour(ts)"]
    assert {"column": "seats", "type": "long", "nullable": False} in described["columns"]
    assert shell.rows("tables") == [{"table": "signups", "version": 0, "files": 0, "rows": 0, "bytes": 0}]
    assert "signups" in shell.run("tables").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("query", "SELECT * FROM nope"), "nope"),
        (("query", "/* x */ update t set n = 1"), "run UPDATE with `alluvia sql`"),
        (("history", "nope"), "there is no table 'nope'"),
        (("create", "Bad-Name"), "lower-case letters"),
        (("create", "t", "--column", "a"), "NAME:TYPE"),
        (("create", "t", "--column", "a:number"), "unknown type 'number'"),
        (("create", "t", "--column", "user:struct"), "map<type,type> or struct<name:type,…>"),
        (("create", "t", "--column", "Event:string"), "column Event: every table for events has it, as string"),
        (("query", "SELECT {s:Int64}", "-p", "s=1"), "parameter $s has a value, but the SQL does not use it: write $s"),
        (("query", "SELECT $n"), "(? or $name) that has no value: give it with --param"),
        (("ingest", "t", "none.csv"), "none.csv: No such file or directory"),
        (("create", "t", "--required", "a"), "--required a"),
        (("create", "t", "--cluster-by", "properties", "--sort-by", "ts"), "cluster_by: the table has sort_by too"),
        (("create", "t", "--property", "alluvia.nope=1"), "alluvia.nope"),
        (("tables", "--lake", "s3://b/p", "--endpoint-url", "nonsense"), "http://host:port"),
        (("verify", "s3://b/p", "--endpoint-url", "http://"), "http://host:port"),
    ],
)
def test_an_error_is_one_line_and_exit_1(shell: Shell, words: tuple[str, ...], message: str) -> None:
    shell.lake.mkdir()
    result = shell.run(*words)
    assert result.exit_code == 1
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert "Traceback" not in result.output


def test_a_number_without_its_option_names_the_option(shell: Shell) -> None:
    for words, option in ((("head", "t", "5"), "--rows 5"), (("restore", "t", "1"), "--version 1")):
        refused = shell.run(*words)
        assert refused.exit_code == 2
        assert f"Error: Got unexpected extra argument ({words[-1]}): write {option}" in refused.stderr
    assert "write" not in shell.run("head", "t", "more").stderr


def test_reports_show_times_and_exports_go_to_standard_output(shell: Shell) -> None:
    shell.rows("create", "t", "--plain", "--column", "n:long")
    shell.rows("sql", "INSERT INTO t VALUES (1)")
    report = shell.run("update", "t", "--all", "--set", "n=2").stdout
    assert re.search(r"^timestamp +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", report, re.MULTILINE)
    assert isinstance(shell.rows("update", "t", "--all", "--set", "n=3")[0]["timestamp_ms"], int)
    exported = shell.run("export", "t", "-", "--format", "csv")
    assert (exported.exit_code, exported.stdout.split(), exported.stderr) == (0, ["n", "3"], "")


def test_wrong_usage_is_exit_2(shell: Shell) -> None:
    assert shell.run("vacuum", "--retention", "soon").exit_code == 2
    assert shell.run("history").exit_code == 2


@pytest.mark.parametrize("retention", ["0", "0s", "0 seconds", "interval 0 days"])
def test_a_retention_of_nothing_takes_what_a_merge_replaced(shell: Shell, retention: str) -> None:
    for at in range(2):
        shell.rows("ingest", "t", "-", stdin=json.dumps({"event_id": str(at), "ts": "2026-01-01"}).encode())
    shell.rows("optimize", "t")
    assert len(shell.rows("vacuum", "t", "--retention", retention, "--yes")[0]["data_files"]) == 2


@pytest.mark.parametrize("retention", ["1h", "1 hour", "7 days", "interval 2 weeks", "2w"])
def test_a_retention_keeps_what_was_removed_within_it(shell: Shell, retention: str) -> None:
    for at in range(2):
        shell.rows("ingest", "t", "-", stdin=json.dumps({"event_id": str(at), "ts": "2026-01-01"}).encode())
    shell.rows("optimize", "t")
    assert shell.rows("vacuum", "t", "--retention", retention, "--yes")[0]["data_files"] == []


@pytest.mark.parametrize("retention", ["soon", "", "1", "-1d", "1.5h", "9999999999999d"])
def test_what_is_no_retention(shell: Shell, retention: str) -> None:
    result = shell.run("vacuum", "--retention", retention)
    assert (result.exit_code, "is not a duration; use for example" in result.stderr) == (2, True)


def test_the_package_itself_runs_as_the_command(tmp_path: Path) -> None:
    words = ["create", "t", "--lake", str(tmp_path), "--json"]
    done = subprocess.run([sys.executable, "-m", "alluvia", *words], capture_output=True, check=True)
    assert json.loads(done.stdout)["table"] == "t"


def test_the_table_of_rejects_by_its_name_in_sql(shell: Shell) -> None:
    shell.run("ingest", "t", "-", stdin=b'{"event":5}')
    assert shell.rows("files", "t._rejects") == shell.rows("files", "t/_rejects")
    for words in (("verify",), ("history",), ("describe",), ("optimize",), ("vacuum",), ("checkpoint",)):
        assert shell.rows(*words, "t._rejects")[-1].get("table", "t/_rejects") == "t/_rejects"
    reasons = [row["reason"] for row in shell.rows("changes", "t._rejects", "--from", "1")]
    assert reasons == ["event: expected a string, got a number"]


def test_invoke_runs_each_function_with_its_event(shell: Shell, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("ingest", "ingest.functions.ingest.events"):  # which others may have imported, to log more
        caplog.set_level(logging.WARNING, name)
    events = Path(__file__).parents[2] / "events"
    answer = shell.run("invoke", "ingest", str(events / "ingest_api_gateway.json"))
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["statusCode"] == 200
    assert len(answer.stdout.splitlines()) > 1
    one_line = shell.rows("invoke", "ingest", str(events / "ingest_api_gateway.json"))
    assert [each["statusCode"] for each in one_line] == [200]
    for function in ("merge", "vacuum"):
        done = shell.run("invoke", function, str(events / f"{function}_schedule.json"))
        assert done.exit_code == 0, done.output
    assert shell.run("invoke", "nope", str(events / "ingest_api_gateway.json")).exit_code == 1


def test_invoke_tells_the_function_which_lake(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ALLUVIA_LAKE", "ALLUVIA_EMR_APPLICATION_ID"):
        monkeypatch.delenv(name, raising=False)
    event = str(Path(__file__).parents[2] / "events" / "backfill_start.json")
    result = shell.run("invoke", "backfill", event)
    assert result.exit_code == 1
    assert result.stderr.startswith("alluvia: ALLUVIA_EMR_APPLICATION_ID is not set: ")
    assert "ALLUVIA_LAKE" not in os.environ


def test_a_backfill_that_is_too_large_for_one_job_says_so(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_bytes(b'{"event":"e"}\n')
    monkeypatch.setattr("alluvia_spark.backfill_job.estimate.DISK_SHARE", 1e12)  # 100 TB for a line
    result = shell.run("backfill", "clicks", str(tmp_path / "a.json"), "--dry-run")
    assert re.search(r"jobs +\d+", result.stdout)
    assert re.search(r"divide the source among \d+ jobs", result.stderr)


def test_a_backfill_knows_no_branch(shell: Shell) -> None:
    assert "--branch" not in shell.run("backfill", "--help").stdout
    assert "--branch" in shell.run("ingest", "--help").stdout
    assert "concerns the lake itself" in shell.run("backfill", "--branch", "fix", "t", "in").stderr


def test_a_backfill_of_nothing_creates_no_table(shell: Shell, tmp_path: Path) -> None:
    shell.run("create", "other")
    result = shell.run("backfill", "clicks", str(tmp_path / "nothing" / "*.json"))
    assert result.exit_code == 1
    assert "matches no file" in result.stderr
    assert [row["table"] for row in shell.rows("tables")] == ["other"]


@pytest.mark.parametrize("function", ["ingest", "merge", "query", "vacuum"])
@pytest.mark.parametrize("event", ["[]", '"x"', "5", "null"])
def test_an_event_that_is_no_object(shell: Shell, tmp_path: Path, function: str, event: str) -> None:
    (tmp_path / "event.json").write_text(event)
    result = shell.run("invoke", function, str(tmp_path / "event.json"))
    assert result.exit_code == 1
    assert result.stderr.startswith("alluvia: the event must be")
    assert len(result.stderr.splitlines()) == 1


def test_an_event_of_another_function_is_refused(shell: Shell, tmp_path: Path) -> None:
    events = Path(__file__).parents[2] / "events"
    shell.run("create", "t")
    for function in ("merge", "vacuum"):
        result = shell.run("invoke", function, str(events / "ingest_api_gateway.json"))
        assert result.exit_code == 1
        assert "version is not a field of this event: use tables" in result.stderr
    result = shell.run("invoke", "ingest", str(events / "merge_tables.json"))
    assert result.exit_code == 1
    assert "must be a request of API Gateway" in result.stderr


def test_vacuum_of_all_tables_tells_of_results_of_queries(shell: Shell) -> None:
    lake = alluvia.connect(str(shell.lake))
    lake.create_table("t", {"n": "long"})
    keep_result(lake.store, "old", KeptResult(b"", {}))
    forget_result(lake.store, "old")
    assert "kept results" not in shell.run("vacuum", "t").stderr
    assert "kept results of queries: 1 would be deleted, 0 stay" in shell.run("vacuum", "--dry-run").stderr
    assert "kept results of queries: 1 deleted, 0 stay" in shell.run("vacuum").stderr
    assert "kept results" not in shell.run("vacuum").stderr
