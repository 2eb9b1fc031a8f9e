"""`alluvia rollup` as its user sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

import alluvia
from alluvia.cli.command_line import cli

QUERY = "SELECT page, count(*) AS hits FROM views GROUP BY page"


def run(lake: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["rollup", *words, "--lake", str(lake)])


def rows(lake: Path, *words: str) -> list[dict[str, Any]]:
    result = run(lake, *words, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_rollup_is_created_listed_refreshed_and_dropped(tmp_path: Path) -> None:
    views = alluvia.connect(str(tmp_path)).create_table("views", {"page": "string"})
    views.append([{"page": "/"}])
    assert rows(tmp_path, "list") == []
    assert rows(tmp_path, "refresh") == []
    (made,) = rows(tmp_path, "create", "hits", QUERY, "--sort-by", "hits")
    assert (made["rollup"], made["source"], made["source_version"]) == ("hits", "views", 1)
    (empty,) = rows(tmp_path, "create", "later", QUERY, "--empty", "--property", "alluvia.codec=snappy")
    assert (empty["source_version"], empty["versions_behind"], empty["as_of"]) == (None, 2, None)
    views.append([{"page": "/"}])
    assert [(row["rollup"], row["versions_behind"]) for row in rows(tmp_path, "list")] == [("hits", 1), ("later", 3)]
    (done,) = rows(tmp_path, "refresh", "hits")
    assert (done["rollup"], done["mode"], done["groups"]) == ("hits", "folded", 1)
    assert [row["mode"] for row in rows(tmp_path, "refresh")] == ["nothing", "rebuilt"]
    assert alluvia.connect(str(tmp_path))["later"].to_arrow().to_pylist() == [{"page": "/", "hits": 2}]
    assert "rebuilt" not in run(tmp_path, "refresh").stdout
    assert [row["mode"] for row in rows(tmp_path, "refresh", "--rebuild", "later")] == ["rebuilt"]
    assert "--rebuild: name the rollups to rebuild" in run(tmp_path, "refresh", "--rebuild").stderr
    assert rows(tmp_path, "drop", "hits")[0]["dropped"] == "hits"
    assert [row["rollup"] for row in rows(tmp_path, "list")] == ["later"]


def test_a_refresh_of_all_takes_the_source_of_a_rollup_first(tmp_path: Path) -> None:
    views = alluvia.connect(str(tmp_path)).create_table("views", {"page": "string"})
    rows(tmp_path, "create", "hits", QUERY)
    rows(tmp_path, "create", "all_hits", "SELECT sum(hits) AS hits FROM hits")
    views.append([{"page": "/"}])
    assert [row["rollup"] for row in rows(tmp_path, "refresh")] == ["hits", "all_hits"]
    assert alluvia.connect(str(tmp_path))["all_hits"].to_arrow().to_pylist() == [{"hits": 1}]


def test_events_for_a_rollup_are_refused_as_such(tmp_path: Path) -> None:
    alluvia.connect(str(tmp_path)).create_table("views", {"page": "string"})
    rows(tmp_path, "create", "hits", QUERY)
    result = CliRunner().invoke(cli, ["ingest", "hits", "-", "--lake", str(tmp_path)], input='{"event": "x"}')
    assert result.exit_code == 1
    assert "table hits is a rollup, which only refresh writes: change its source instead" in result.stderr


def test_what_goes_wrong_is_one_clear_line(tmp_path: Path) -> None:
    alluvia.connect(str(tmp_path)).create_table("views", {"page": "string"})
    for words, reason in (
        (("create", "hits", "SELECT * FROM views"), "a rollup's query cannot use *: name the columns"),
        (("drop", "views"), "table views is not a rollup: create one with create_rollup(name, query)"),
        (("refresh", "views"), "table views is not a rollup"),
    ):
        result = run(tmp_path, *words)
        assert result.exit_code == 1
        assert reason in result.stderr
        assert len(result.stderr.splitlines()) == 1
