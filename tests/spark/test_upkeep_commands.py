"""Commands with `--spark`."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner
from pyspark.sql import SparkSession

from alluvia.api.lake import Lake
from alluvia.cli.command_line import cli


def run(lake: Lake, *words: str) -> Any:
    return CliRunner().invoke(cli, [words[0], "--lake", lake.uri.removeprefix("file://"), "--json", *words[1:]])


def test_commands_maintain_tables_by_spark(spark: SparkSession, lake: Lake) -> None:
    del spark  # the session that the commands find
    for name in ("one", "two"):
        table = lake.create_table(name, {"id": "long"})
        for number in range(3):
            table.append([{"id": number}])
    done = run(lake, "optimize", "--spark")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["table"], row["files_removed"], row["files_after"]) for row in rows] == [("one", 3, 1), ("two", 3, 1)]
    gone = json.loads(run(lake, "vacuum", "one", "--retention", "0s", "--yes", "--spark").stdout)
    assert gone["counts"]["data_files"] == 3
    assert lake["one"].count() == 3
    checked = json.loads(run(lake, "verify", "one", "--full", "--spark").stdout)
    assert (checked["ok"], checked["rows"], checked["full"]) == (True, 3, True)
    assert "add --full" in run(lake, "verify", "one", "--spark").output
    missing = run(lake, "optimize", "nothing", "--spark")
    assert (missing.exit_code, "there is no table 'nothing'" in missing.output) == (1, True)
    assert "--spark works on the lake itself" in run(lake, "optimize", "one", "--spark", "--branch", "b").output
