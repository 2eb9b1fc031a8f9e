"""The sample events run one after the other in one lake, as their page says."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import alluvia
from alluvia.cli.command_line import cli

EVENTS = Path(__file__).parents[2] / "events"
COMMAND = re.compile(r"^alluvia (invoke (\w+) events/(\w+\.json))$", re.MULTILINE)


def commands(kind: str) -> list[tuple[str, str]]:
    """The functions and samples of the page's block of a kind, in order."""
    block = (EVENTS / "README.md").read_text().partition(f"```{kind}\n")[2].partition("```")[0]
    return [(function, sample) for _, function, sample in COMMAND.findall(block)]


def invoke(lake: Path, function: str, sample: str) -> Result:
    words = ["invoke", "--lake", str(lake), "--json", *shlex.split(f"{function} {EVENTS / sample}")]
    return CliRunner().invoke(cli, words)


def test_the_page_names_every_sample_once() -> None:
    named = [sample for kind in ("sh", "text") for _, sample in commands(kind)]
    assert sorted(named) == sorted(path.name for path in EVENTS.glob("*.json"))


def test_the_samples_run_one_after_the_other_in_one_lake(tmp_path: Path) -> None:
    answers: dict[str, Any] = {}
    for function, sample in commands("sh"):
        result = invoke(tmp_path / "lake", function, sample)
        assert result.exit_code == 0, f"{sample}: {result.output}"
        answers[sample] = json.loads(result.stdout.splitlines()[-1])
    posts = [answers[f"ingest_{kind}.json"] for kind in ("api_gateway", "function_url")]
    assert [(post["statusCode"], json.loads(post["body"])["accepted"]) for post in posts] == [(200, 3), (200, 3)]
    assert answers["ingest_sqs.json"] == {"batchItemFailures": []}
    assert answers["merge_sqs.json"] == {"batchItemFailures": []}
    merged = {each["table"]: each for each in answers["merge_schedule.json"]["tables"]}
    assert sorted(merged) == ["access_log", "github_webhooks"]
    # The notification leaves two files for later: they are merged by the sweep.
    assert (merged["access_log"]["files_before"], merged["access_log"]["version"]) == (2, 3)
    assert [each["table"] for each in answers["merge_tables.json"]["tables"]] == ["access_log", "github_webhooks"]
    by_day = json.loads(answers["query_api_gateway.json"]["body"])
    assert by_day == [{"day": "2015-05-17", "status": "200", "requests": 5}]
    deliveries = answers["query_function_url.json"]["body"].splitlines()
    assert deliveries == ["event,deliveries", "installation,2", "ping,1", "team,1"]
    assert answers["query_get_api_gateway.json"]["body"] == answers["query_function_url.json"]["body"]
    assert json.loads(answers["query_table_api_gateway.json"]["body"])["rows"] == 5
    assert json.loads(answers["query_invoke.json"]["body"]) == {"events": 5}
    assert answers["sql_api_gateway.json"]["statusCode"] == 403
    assert answers["vacuum_dry_run.json"]["dry_run"] is True
    assert {each["table"] for each in answers["vacuum_schedule.json"]["tables"]} == {"access_log", "github_webhooks"}
    assert answers["vacuum_sqs.json"] == {"batchItemFailures": []}
    lake = alluvia.connect(str(tmp_path / "lake"))
    assert [lake.table(name).scan().read_all().num_rows for name in lake.tables()] == [5, 4]


@pytest.mark.parametrize(("function", "sample"), commands("text"))
def test_what_needs_aws_says_so(tmp_path: Path, function: str, sample: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ALLUVIA_EMR_APPLICATION_ID", "ALLUVIA_EMR_ROLE_ARN", "ALLUVIA_CODE_URI"):
        monkeypatch.delenv(name, raising=False)
    result = invoke(tmp_path, function, sample)
    assert result.exit_code == 1
    assert "starts a job on EMR Serverless; without AWS, `alluvia backfill` runs the same job" in result.stderr
    assert len(result.stderr.splitlines()) == 1
