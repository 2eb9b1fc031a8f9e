"""The project of the guide, as a user builds it from the page, and what the page says of the refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import alluvia
from tests.dbt.running import ROOT, Dbt, running_dbt
from tests.dbt.suite import left_out

GUIDE = ROOT / "docs" / "guides" / "dbt.md"
FIRST = datetime(2026, 11, 27, 10, tzinfo=UTC)
pytestmark = pytest.mark.slow


def files_of_the_guide() -> dict[str, str]:
    """Return the files that the page shows, by the path in their first line."""
    found = re.findall(
        r"^```(?:yaml|sql)\n(?:#|--) (\S+\.\w+)\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL
    )
    return dict(found)


def write(project: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)


VISITORS = """
models:
  - name: visitors
    description: By address
    config: { persist_docs: { relation: true, columns: true } }
    columns:
      - { name: ip, description: Of the client }
      - { name: requests, description: In all }
      - { name: last_seen }
"""
FIRSTS = """{{ config(
  materialized='incremental', unique_key='ip', incremental_strategy='merge', merge_exclude_columns=['ip', 'build']
) }} SELECT DISTINCT ip, '{{ invocation_id }}' AS build FROM {{ source('lake', 'requests') }}"""


@pytest.fixture(scope="module")
def dbt() -> Iterator[Dbt]:
    with running_dbt() as dbt:
        yield dbt


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write(tmp_path, files_of_the_guide())
    lake = alluvia.connect(tmp_path / "lake")
    lake.sql("CREATE TABLE requests (ts TIMESTAMP, ip STRING)")
    lake["requests"].append([{"ts": FIRST + timedelta(hours=n), "ip": f"10.0.0.{n % 3}"} for n in range(20)])
    return tmp_path


def test_the_project_is_built_and_follows_the_lake(dbt: Dbt, project: Path) -> None:
    checked = "schema: main, config: {freshness: {warn_after: {count: 1, period: day}}}"
    write(
        project, {"models/old.yml": f"sources: [{{name: old, {checked}, tables: [{{name: idle}}, {{name: unused}}]}}]"}
    )
    write(project, {"models/visitors.yml": VISITORS, "models/firsts.sql": FIRSTS})
    (built,) = dbt(project, "build")
    assert built.ok, built.said
    lake = alluvia.connect(project / "lake")
    days = "SELECT day::VARCHAR AS day, requests, visitors FROM daily ORDER BY day"
    assert lake.sql(days).to_pylist() == [
        {"day": "2026-11-27", "requests": 14, "visitors": 3},
        {"day": "2026-11-28", "requests": 6, "visitors": 3},
    ]
    lake["requests"].append([{"ts": FIRST + timedelta(hours=21), "ip": "10.0.0.9"}])
    loaded = lake["requests"].history(1)[0].timestamp
    lake["requests"].optimize()
    lake.sql("CREATE TABLE unused (n INT)")
    lake.sql("CREATE TABLE idle AS SELECT 1 AS n")
    for number in range(100):
        lake["idle"].evolve(properties={"note": str(number)})
    with (project / "models" / "daily.yml").open("a") as described:
        described.write("      - name: visitors\n")
    lake.sql("COMMENT ON COLUMN daily.visitors IS 'as it was described before'")
    again, fresh, documented = dbt(project, "build", "source freshness", "docs generate")
    assert again.ok, again.said
    assert lake.sql(days).to_pylist()[1] == {"day": "2026-11-28", "requests": 7, "visitors": 4}
    builds = lake.sql("SELECT count(*) AS n FROM firsts GROUP BY build ORDER BY n")
    assert builds["n"].to_pylist() == [1, 3]  # the second one updates no row
    assert lake.sql("SELECT count(*) AS n FROM people WHERE dbt_valid_to IS NULL")["n"].to_pylist() == [4]
    assert fresh.ok, fresh.said
    assert "PASS freshness of lake.requests" in fresh.said
    assert lake["requests"].history(1)[0].operation == "OPTIMIZE"
    assert loaded_at(project, "lake.requests") == loaded
    assert loaded_at(project, "old.idle") == lake["idle"].history(100)[-1].timestamp  # the rows are older than that
    assert loaded_at(project, "old.unused").year == 1
    assert "WARN freshness of old.unused" in fresh.said
    assert documented.ok, documented.said
    catalog = json.loads((project / "target" / "catalog.json").read_text())
    assert lake["daily"].comment == "Requests of each day"
    assert lake["daily"].column_comments == {"day": "In UTC"}
    built_and_commented = ["TRANSACTION", "TRANSACTION"]
    commented = "CHANGE COLUMN"
    operations = [each.operation for each in lake["daily"].history()]
    assert operations == [commented, "MERGE", commented, *built_and_commented]
    assert lake.sql("SHOW VIEWS")["comment"].to_pylist() == ["By address"]
    said = "SELECT \"COLUMN_COMMENT\" AS c FROM information_schema.columns WHERE table_name = 'visitors'"
    assert lake.sql(said)["c"].to_pylist() == ["Of the client", "In all", None]
    types = {node["metadata"]["name"]: node["metadata"]["type"] for node in catalog["nodes"].values()}
    assert types == {"daily": "BASE TABLE", "visitors": "VIEW", "people": "BASE TABLE", "firsts": "BASE TABLE"}
    assert catalog["nodes"]["model.web.daily"]["columns"]["day"]["type"] == "DATE"


def loaded_at(project: Path, source: str) -> datetime:
    """Return when the rows of a source came, as the last `dbt source freshness` found."""
    found = json.loads((project / "target" / "sources.json").read_text())["results"]
    (text,) = (each["max_loaded_at"] for each in found if each["unique_id"] == f"source.web.{source}")
    return datetime.fromisoformat(text)


REFUSED: dict[str, tuple[str, str]] = {
    left_out.FUNCTIONS: ("twice", "CREATE FUNCTION is not supported"),
    left_out.PYTHON: ("py", "only supports languages ['sql']; got \"python\""),
    left_out.MATERIALIZED: ("materialized", "a lake has rollups, which dbt does not declare"),
    left_out.GRANTS: ("granted", "grants: a lake has none"),
    left_out.HEADER: ("headed", "SET is not supported"),
    left_out.QUOTED_CHECK: ("quoted", "which cannot be checked here"),
    left_out.NAMES: ("with.dots", "use up to 128 lower-case letters, digits and underscores"),
    "files": ("reads_files", "read_csv"),
    "strategies": ("unknown_strategy", "insert_overwrite"),
}
REFUSED_FILES = {
    "functions/twice.sql": "SELECT n * 2",
    "functions/twice.yml": "functions: [{name: twice, arguments: [{name: n, data_type: bigint}], "
    "returns: {data_type: bigint}}]",
    "models/py.py": "def model(dbt, session):\n    return dbt.ref('daily')\n",
    "models/materialized.sql": "{{ config(materialized='materialized_view') }} SELECT 1 AS n",
    "models/granted.sql": "{{ config(materialized='table', grants={'select': ['ada']}) }} SELECT 1 AS n",
    "models/headed.sql": "{{ config(materialized='table', sql_header=\"SET TIME ZONE 'UTC';\") }} SELECT 1 AS n",
    "models/quoted.sql": "{{ config(materialized='table', contract={'enforced': true}) }} SELECT 1 AS \"from\"",
    "models/quoted.yml": "models: [{name: quoted, columns: [{name: from, quote: true, data_type: integer, "
    "constraints: [{type: check, expression: '\"from\" > 0'}]}]}]",
    "seeds/with.dots.csv": "n\n1",
    "models/elsewhere.sql": "{{ config(database=var('database', 'memory')) }} SELECT 1 AS n",
    "models/reads_files.sql": "SELECT * FROM read_csv('/etc/passwd')",
    "models/unknown_strategy.sql": "{{ config(materialized='incremental', incremental_strategy='insert_overwrite') }} "
    "SELECT 1 AS n",
}


def test_what_is_refused_says_so_and_leaves_the_lake_as_it_was(dbt: Dbt, project: Path) -> None:
    write(project, REFUSED_FILES)
    names = " ".join(name for name, _ in REFUSED.values())
    done, empty, elsewhere = dbt(project, f"build --select {names}", "seed --empty", "parse --vars '{database: shop}'")
    assert not done.ok
    for _, said in REFUSED.values():
        assert said in done.said
    assert f"PASS=0 WARN=0 ERROR={len(REFUSED)}" in done.said
    assert alluvia.connect(project / "lake").tables() == ["requests"]
    assert "No such option '--empty'" in empty.said
    assert not elsewhere.ok
    assert "database shop: a lake has one database, 'memory'" in elsewhere.said


def test_every_reason_for_leaving_out_a_class_is_shown() -> None:
    """By a refusal here, by another class of the suite, which runs and says the opposite, or by the suite itself."""
    by_classes = {left_out.CLONES, left_out.ZONED, left_out.QUOTES}
    by_others = {left_out.HELPER, left_out.SEED_EMPTY, left_out.DATABASES}
    assert set(left_out.REASONS) == (set(REFUSED) - {"files", "strategies"}) | by_classes | by_others


def test_what_fails_leaves_what_there_was(dbt: Dbt, project: Path) -> None:
    """Of a table and of a view, which another kind of model is to replace, and of tables that become clones."""
    model = "{{{{ config(materialized=var('{}'), sort_by='n') }}}} SELECT {{{{ var('n') }}}} AS n"
    kinds = {"kept": "table", "cloned": "table", "taken": "table", "shown": "view"}
    write(project, {f"models/{name}.sql": model.format(kind) for name, kind in kinds.items()})
    profile = (project / "profiles.yml").read_text()
    write(project, {"profiles.yml": profile + "    prod: { type: alluvia, path: lake, schema: prod }\n"})
    lake = alluvia.connect(project / "lake")
    alluvia.connect(project / "other").sql("CREATE TABLE taken AS SELECT 3 AS n")
    lake.sql("CREATE SCHEMA prod")
    lake.sql("CREATE TABLE prod.cloned AS SELECT 3 AS n")
    lake.attach("prod.taken", str(project / "other" / "taken"))
    good, bad = "--vars '{table: table, view: view, n: 1}'", "--vars '{table: view, view: table, n: nothing}'"
    built, failed, parsed, cloned = dbt(
        project,
        f"run --select {' '.join(kinds)} {good}",
        f"run --select kept shown {bad}",
        f"parse --target prod --target-path state {good}",
        f"clone --full-refresh --state state --select cloned taken {good}",
    )
    assert (built.ok, failed.ok, parsed.ok, cloned.ok) == (True, False, True, False), cloned.said
    assert "PASS=0 WARN=0 ERROR=2" in failed.said
    assert "where nothing keeps files for this lake" in cloned.said
    assert lake["cloned"].history()[0].operation == "CLONE"
    rows = {name: lake.sql(f"SELECT n FROM {name}")["n"].to_pylist() for name in kinds}
    assert rows == {"kept": [1], "cloned": [3], "taken": [1], "shown": [1]}
    assert "shown" not in lake.tables()


PROFILES = {
    "both": ("path: lake, url: 'http://localhost:1'", "one of the two"),
    "neither": ("threads: 1", "one of the two"),
    "address": ("path: 'http://localhost:1'", "give it as url"),
    "token": ("path: lake, token: t", "token is an option of servers"),
    "place": ("url: 's3://bucket'", "url: expected http://"),
    "options": ("url: 'http://localhost:1', options: {region: r}", "options are those of the lake's store"),
    "database": ("path: lake, database: shop", "a lake has one database"),
    "branch": ("path: lake, branch: none", "there is no branch 'none'"),
}


def test_a_profile_that_makes_no_sense_is_refused(dbt: Dbt, project: Path) -> None:
    outputs = ", ".join(f"{name}: {{type: alluvia, schema: main, {text}}}" for name, (text, _) in PROFILES.items())
    write(project, {"profiles.yml": f"web: {{target: both, outputs: {{{outputs}}}}}\n"})
    checked = [f"{'debug' if name == 'branch' else 'parse'} --target {name}" for name in PROFILES]
    for done, (_, said) in zip(dbt(project, *checked), PROFILES.values(), strict=True):
        assert not done.ok
        assert said in done.said
