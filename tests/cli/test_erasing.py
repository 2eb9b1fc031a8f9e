"""`alluvia erase` as its user sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner, Result

import alluvia
from alluvia.api.lake import Lake
from alluvia.cli.command_line import cli
from alluvia.errors import Invalid
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import RawEvent
from alluvia.store.s3.bucket import S3Store
from tests.erased import traces
from tests.s3server import S3Server

VICTIM = "mallory@example.org"
WHERE = f"user_id = '{VICTIM}'"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = alluvia.connect(str(tmp_path))
    for name in ("clicks", "orders"):
        lake.create_table(name, {"user_id": "string", "n": "long"})
        lake.table(name).append([{"user_id": VICTIM, "n": 1}, {"user_id": "alice", "n": 2}])
    lake.create_table("places", {"name": "string"}).append([{"name": "here"}])
    lake.create_rollup("totals", "SELECT user_id, count(*) AS n FROM clicks GROUP BY user_id")
    return lake


def run(lake: Lake, *words: str) -> Result:
    return CliRunner().invoke(cli, ["erase", "--where", *words, "--lake", lake.uri])


def reports(lake: Lake, *words: str) -> list[dict[str, Any]]:
    result = run(lake, *words, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_all_tables_with_the_columns_are_erased_rollups_last(lake: Lake) -> None:
    found = reports(lake, WHERE, "--prove")
    assert [(each["table"], each["rows"], each["ok"]) for each in found] == [
        ("clicks", 1, True),
        ("orders", 1, True),
        ("places", 0, True),
        ("totals", 0, True),
    ]
    assert traces(lake.store, VICTIM) == []
    assert lake.table("totals").to_arrow().to_pylist() == [{"user_id": "alice", "n": 1}]
    assert lake.table("places").version == 1


def test_a_table_that_refuses_does_not_keep_it_from_the_others(lake: Lake) -> None:
    lake.table("clicks").tag("kept")
    lake.clone("orders", "zorders")
    result = run(lake, WHERE, "--prove")
    assert result.exit_code == 1
    assert "alluvia: clicks was not erased: erase: versions of clicks that are kept hold such rows" in result.stderr
    for name in ("orders", "zorders"):
        assert lake.table(name).to_arrow(["user_id"])["user_id"].to_pylist() == ["alice"]
    assert traces(lake.store, VICTIM, "orders/") == traces(lake.store, VICTIM, "zorders/") == []


def test_rows_of_a_dropped_table_are_named(lake: Lake) -> None:
    lake.drop_table("orders")
    result = run(lake, WHERE)
    assert result.exit_code == 1
    assert "alluvia: orders was not erased: it was dropped, and its files still contain matching rows" in result.stderr
    assert "orders" in run(lake, WHERE, "--dry-run").stdout


def test_a_field_in_properties_that_is_a_column_elsewhere_is_erased(lake: Lake) -> None:
    lake.create_events("events")
    sent = [
        RawEvent(0, {"event_id": "a", "user_id": VICTIM}),
        RawEvent(1, {"event_id": "b", "who": {"user_id": VICTIM}}),
    ]
    ingest_batch(lake.catalog, "events", sent, arrival_us=lake.clock.now_us())
    result = run(lake, WHERE)
    assert result.exit_code == 1
    assert "events: erased 1 row" in result.stdout
    assert "who.user_id, which may mean something else" in result.stdout
    assert "alluvia: something is left in events" in result.stderr
    assert run(lake, f"who.user_id = '{VICTIM}'", "events", "--prove").exit_code == 0
    assert traces(lake.store, VICTIM) == []


def test_a_field_that_nothing_has_is_named(lake: Lake) -> None:
    lake.create_events("events")
    ingest_batch(lake.catalog, "events", [RawEvent(0, {"event_id": "a", "plan": "x"})], arrival_us=lake.clock.now_us())
    result = run(lake, f"usr_id = '{VICTIM}'")
    assert result.stderr == "alluvia: field usr_id was not found: check the spelling\n"
    assert run(lake, "plan = 'y'").stderr == ""
    assert run(lake, "user_id = 'y'", "--prove").stderr == ""


def test_what_was_done_and_searched_is_printed(lake: Lake) -> None:
    result = run(lake, WHERE, "orders", "--prove")
    assert result.exit_code == 0
    assert "orders: erased 1 row; the oldest version that can be read is 2" in result.stdout
    assert "removed: 1 data file, what 1 commit showed" in result.stdout
    assert "searched 4 commits (" in result.stdout
    assert "searched 1 data file (" in result.stdout
    assert "nothing found up to version 3" in result.stdout
    assert VICTIM not in result.output
    assert traces(lake.store, VICTIM, "orders/") == []
    assert traces(lake.store, VICTIM, "clicks/")


def test_a_dry_run_only_searches(lake: Lake) -> None:
    before = {info.key: lake.store.get(info.key) for info in lake.store.list("")}
    result = run(lake, WHERE, "clicks", "--dry-run")
    assert result.stdout.startswith("clicks: would erase ")
    assert result.exit_code == 0
    assert "found in 1 object:" in result.stdout
    assert "a readable version has matching rows in it" in result.stdout
    assert {info.key: lake.store.get(info.key) for info in lake.store.list("")} == before


def test_a_dry_run_over_all_tables_names_those_with_rows_and_adds_them_up(lake: Lake) -> None:
    lake.drop_table("places")
    stdout = run(lake, WHERE, "--dry-run").stdout
    named = [line.partition(":")[0] for line in stdout.splitlines() if ": would erase" in line or ": dropped" in line]
    assert named == ["clicks", "orders", "totals"]
    assert stdout.splitlines()[-1] == "would erase 3 rows, in 3 of 4 tables that were searched"
    assert run(lake, "user_id = 'nobody'", "--dry-run").stdout == (
        "would erase 0 rows, in 0 of 4 tables that were searched\n"
    )


def test_what_is_found_outside_of_the_tables_is_listed_once(lake: Lake) -> None:
    lake.sql(f"CREATE VIEW v AS SELECT * FROM orders WHERE {WHERE}")
    result = run(lake, WHERE, "--prove")
    assert result.exit_code == 1
    assert result.stdout.count("_alluvia/views/v/") == 1


def test_what_is_left_ends_with_status_1(lake: Lake) -> None:
    table = lake.table("orders")
    table._handle.writer(table.snapshot()).write(table.to_arrow(where=WHERE))
    result = run(lake, WHERE, "orders", "--prove")
    assert result.exit_code == 1
    assert "a transaction may be about to commit it; erase again after " in result.stdout
    assert result.stderr == "alluvia: something is left in orders\n"


def test_a_condition_that_no_table_knows_is_refused(lake: Lake) -> None:
    result = run(lake, "nobody = 'x'")
    assert result.exit_code == 1
    assert "nobody" in result.stderr
    assert run(lake, WHERE, "places").exit_code == 1


def test_old_versions_that_the_bucket_keeps_are_listed(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    client, bucket = s3_server.client, s3_server.new_bucket()
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    options = s3_server.options
    lake = alluvia.connect(f"s3://{bucket}/lake", **options)
    table = lake.create_table("clicks", {"user_id": "string"})
    table.append([{"user_id": VICTIM}, {"user_id": "alice"}])
    lake.create_table("clicks2", {"user_id": "string"}).append([{"user_id": "bob"}])
    lake.store.put("clicks2/old", b"1")
    lake.store.put("clicks2/old", b"2")
    [removed] = [file.path for file in table.files]
    environment = {
        "AWS_ENDPOINT_URL_S3": options["endpoint_url"],
        "AWS_ACCESS_KEY_ID": options["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": options["secret_access_key"],
        "AWS_REGION": options["region"],
    }
    command = ["erase", "--where", WHERE, "clicks", "--lake", lake.uri]

    result = CliRunner().invoke(cli, [*command, "--prove"], env=environment)
    assert result.exit_code == 0, result.output
    found = client.list_object_versions(Bucket=bucket, Prefix="lake/clicks/")["Versions"]
    [kept] = [each for each in found if each["Key"] == f"lake/clicks/{removed}"]
    assert f"the bucket still keeps clicks/{removed}, version {kept['VersionId']} (" in result.stdout
    assert "elsewhere, delete them, or have a lifecycle rule expire them" in result.stdout

    result = CliRunner().invoke(cli, [*command, "--dry-run", "--json"], env=environment)
    listed = {(each["key"], each["version_id"]) for each in json.loads(result.stdout)["proof"]["old_versions"]}
    assert listed == {(each["Key"].removeprefix("lake/"), each["VersionId"]) for each in found if not each["IsLatest"]}

    s3_server.inject({"method": "GET", "match": f"^/{bucket}/?$", "fault": "status:403", "times": 1})
    with pytest.raises(Invalid, match="allow s3:ListBucketVersions") as refused:
        list(lake.store.old_versions("clicks/"))

    def refuse(*_: object) -> NoReturn:
        raise refused.value

    monkeypatch.setattr(S3Store, "old_versions", refuse)
    result = CliRunner().invoke(cli, [*command, "--dry-run"], env=environment)
    assert result.exit_code == 0, result.output
    assert "not known which older versions the bucket still keeps: S3 refuses" in result.stdout
