"""The page for operators says what is deployed, and its commands are ones that AWS has."""

from __future__ import annotations

import re
import shlex
from typing import Any

import boto3

from infra.settings import Settings
from tests.infra.conftest import ROOT
from tests.infra.test_alarms import alarms, dimensions, metrics

Template = dict[str, Any]
PAGE = (ROOT / "docs" / "OPERATIONS.md").read_text(encoding="utf-8")
GLOBAL_OPTIONS = {"query", "output", "region", "profile"}


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_it_has_a_row_for_each_alarm(template: Template) -> None:
    rows = re.findall(r"^\| (`.+?`) \|", section("Alarms"), re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted([*alarms(template), "JobFailed"])


def test_it_says_what_the_alarms_cost(template: Template) -> None:
    found = [metric for alarm in alarms(template).values() for metric in metrics(alarm).values()]
    own = {(metric["MetricName"], str(dimensions(metric))) for metric in found if metric["Namespace"] == "Alluvia"}
    for said in (
        f"{len(alarms(template))} alarms watch {len(found)} metrics, at $0.10 each a month: ${len(found) / 10:.2f}",
        f"{len(own)} metrics of our own, at $0.30 each: ${len(own) * 0.3:.2f}",
    ):
        assert said in PAGE


def test_its_settings_have_their_defaults() -> None:
    default, seen = Settings(), 0
    for names, values in re.findall(r"^\| (`.+?`) \| ([^|]*)\|", section("Deploy"), re.MULTILINE):
        settings = re.findall(r"`(\w+)`", names)
        texts = [text.strip() for text in values.split(",")] * (len(settings) if "," not in values else 1)
        for name, text in zip(settings, texts, strict=True):
            wanted = (
                None if text in ("", "none", "false") else text == "true" or (int(text) if text.isdigit() else text)
            )
            assert (getattr(default, name) or None) == wanted, name
            seen += 1
    assert seen == 31


def test_it_names_outputs_of_the_stack(template: Template) -> None:
    named = set(re.findall(r"`(\w+(?:Name|Url|Arn))`", PAGE))
    assert {"AlarmTopicArn", "DeadLettersUrl", "IngestFunctionName"} <= named <= set(template["Outputs"])


def test_its_commands_are_those_of_aws() -> None:
    """Each operation and each of its options exists in the model that the AWS command line is made from."""
    commands = re.findall(r"^aws (.+)$", PAGE, re.MULTILINE)
    assert len(commands) >= 9
    for command in commands:
        service, operation, *words = shlex.split(command)
        model = boto3.client(service, region_name="eu-central-1").meta.service_model  # type: ignore[call-overload]
        (name,) = (name for name in model.operation_names if kebab(name) == operation)
        members = {kebab(member) for member in model.operation_model(name).input_shape.members}
        assert {word[2:] for word in words if word.startswith("--")} <= members | GLOBAL_OPTIONS, command


def kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


def test_every_make_target_that_it_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(
        re.search(rf"^{target}:", makefile, re.MULTILINE) for target in re.findall(r"^make (\w+)", PAGE, re.MULTILINE)
    )
