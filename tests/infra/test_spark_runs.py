"""The state machines that run jobs of Spark: their steps, and what they may do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from alluvia_spark.upkeep import job
from functions.backfill import handler
from infra.sources import Sources
from tests.infra.conftest import read_template, synthesise
from tests.infra.policies import grants, resources_of, statements_of_role, text, the_id

MACHINE = "AWS::StepFunctions::StateMachine"
Template = Mapping[str, Any]


@pytest.fixture(scope="module")
def machine(template: Template) -> dict[str, Any]:
    return resources_of(template, MACHINE)[the_id(template, MACHINE, "BackfillRunsMachine")]


@pytest.fixture(scope="module")
def states(machine: dict[str, Any]) -> dict[str, Any]:
    definition = json.loads(text(machine["DefinitionString"]))
    assert definition["StartAt"] == "Start"
    assert definition["TimeoutSeconds"] > handler.ATTEMPTS_MAX * handler.RUN_MINUTES_MAX * 60
    found: dict[str, Any] = definition["States"]
    return found


def after(states: dict[str, Any], run_state: str) -> str:
    """The state that follows once a run is in some state."""
    choice = states["HasItEnded?"]
    for rule in choice["Choices"]:
        for test in rule.get("Or", [rule]):
            assert test["Variable"] == "$.status.state"
            if test["StringEquals"] == run_state:
                return str(rule["Next"])
    return str(choice["Default"])


def test_it_starts_a_job_and_looks_until_it_has_ended(states: dict[str, Any]) -> None:
    assert "Parameters" not in states["Start"]  # the request is the execution's input
    assert (states["Start"]["ResultPath"], states["Start"]["Next"]) == ("$.run", "Wait")
    assert (states["Wait"]["Seconds"], states["Wait"]["Next"]) == (60, "Look")
    assert states["Look"]["Parameters"] == {"action": "status", "job_run_id.$": "$.run.job_run_id"}
    assert (states["Look"]["ResultPath"], states["Look"]["Next"]) == ("$.status", "HasItEnded?")


@pytest.mark.parametrize(
    ("run_state", "name"),
    [
        *((run_state, "Wait") for run_state in ("SUBMITTED", "PENDING", "SCHEDULED", "RUNNING", "CANCELLING")),
        ("SUCCESS", "Report"),
        ("FAILED", "Failed"),
        ("CANCELLED", "Failed"),
    ],
)
def test_what_follows_from_the_state_of_a_run(states: dict[str, Any], run_state: str, name: str) -> None:
    assert after(states, run_state) == name


def test_a_failed_run_fails_the_execution_with_its_details(states: dict[str, Any]) -> None:
    assert states["Failed"] == {"Type": "Fail", "ErrorPath": "$.status.state", "CausePath": "$.status.details"}


def test_its_output_is_the_report_of_the_job(states: dict[str, Any]) -> None:
    report = states["Report"]
    assert report["Resource"].endswith(":states:::aws-sdk:s3:getObject")
    assert report["Parameters"]["Key.$"] == (
        "States.Format('lake/_alluvia/backfill/reports/{}/{}.json', $.run.table, $.run.job_id)"
    )
    assert (report["ResultSelector"], report["OutputPath"]) == (
        {"report.$": "States.StringToJson($.Body)"},
        "$.report",
    )
    assert report["End"]


def test_only_what_a_retry_may_cure_is_tried_again(states: dict[str, Any]) -> None:
    for name in ("Start", "Look"):
        errors = {error for retry in states[name]["Retry"] for error in retry["ErrorEquals"]}
        assert {error for error in errors if not error.startswith("Lambda.")} == {"Unavailable"}


def test_it_may_call_the_function_and_read_reports(template: Template, machine: dict[str, Any]) -> None:
    role = the_id(template, "AWS::IAM::Role", "BackfillRunsMachineRole")
    assert machine["RoleArn"] == {"Fn::GetAtt": [role, "Arn"]}
    alias = the_id(template, "AWS::Lambda::Alias", "FunctionsBackfillLive")
    bucket = the_id(template, "AWS::S3::Bucket", "StorageLake")
    found = {
        (statement["Action"], text(statement["Resource"]))
        for statement in statements_of_role(template, role)
        if statement["Resource"] != "*"
    }
    assert found == {
        ("lambda:InvokeFunction", f"{{{alias}}}"),
        ("s3:GetObject", f"{{{bucket}.Arn}}/lake/_alluvia/backfill/reports/*"),
    }


def test_work_is_handed_over_by_merge_pipeline_and_vacuum_alone(template: Template) -> None:
    machine = the_id(template, MACHINE, "UpkeepRunsMachine")
    wanted = {("states:StartExecution", f"{{{machine}}}"), ("states:ListExecutions", f"{{{machine}}}")}
    for name in ("Ingest", "Commit", "Merge", "Pipeline", "Query", "Jobs", "Vacuum", "Backfill"):
        found = grants(statements_of_role(template, the_id(template, "AWS::IAM::Role", f"Functions{name}Role")))
        handed = {(action, text(resource)) for action, resource in found if action.startswith("states:")}
        assert handed == (wanted if name in ("Merge", "Pipeline", "Vacuum") else set())
        function = resources_of(template, "AWS::Lambda::Function")[
            the_id(template, "AWS::Lambda::Function", f"Functions{name}")
        ]
        told = function.get("Properties", function)
        given = told["Environment"]["Variables"].get("ALLUVIA_SPARK_UPKEEP_ARN")
        assert (given is not None) == (name in ("Merge", "Pipeline", "Vacuum"))


def test_the_job_of_upkeep_answers_with_its_report(template: Template) -> None:
    machine = resources_of(template, MACHINE)[the_id(template, MACHINE, "UpkeepRunsMachine")]
    states = json.loads(text(machine["DefinitionString"]))["States"]
    assert states["Report"]["Parameters"]["Key.$"] == (
        "States.Format('lake/_alluvia/upkeep/reports/{}/{}.json', $.run.operation, $.run.table)"
    )
    assert job.REPORTS == "_alluvia/upkeep/reports/"


def test_a_setting_turns_it_off(placeholders: Sources, tmp_path: Path) -> None:
    template = read_template(synthesise(placeholders, tmp_path, heavy_upkeep="false"))
    assert len(resources_of(template, MACHINE)) == 1
    assert "ALLUVIA_SPARK_UPKEEP_ARN" not in json.dumps(template)
    assert not [name for name in resources_of(template, "AWS::IAM::Role") if "UpkeepRole" in name]
