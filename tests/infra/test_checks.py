"""cdk-nag's AwsSolutions pack is part of every synthesis."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.sources import Sources
from infra.specs import STACK_NAME
from tests.infra.conftest import CDK_CONTEXT


def test_the_stack_has_no_finding_left(assembly: Path) -> None:
    report = json.loads((assembly / "validation-report.json").read_text(encoding="utf-8"))
    assert report["pluginReports"] == []


def test_a_finding_that_nobody_accepted_fails_the_synthesis(placeholders: Sources, tmp_path: Path) -> None:
    from aws_cdk import Stack
    from aws_cdk import aws_s3 as s3

    from infra.synth import create_app

    app = create_app(placeholders, CDK_CONTEXT, str(tmp_path))
    stack = app.node.find_child(STACK_NAME)
    assert isinstance(stack, Stack)
    s3.Bucket(stack, "Careless")
    with pytest.raises(RuntimeError, match="AwsSolutions-S10"):
        app.synth()
    (report,) = json.loads((tmp_path / "validation-report.json").read_text(encoding="utf-8"))["pluginReports"]
    assert report["pluginName"] == "AwsSolutions"
    assert {violation["ruleName"] for violation in report["violations"]} == {"AwsSolutions-S1", "AwsSolutions-S10"}


def test_every_accepted_finding_has_a_reason_and_is_one_of_these(assembly: Path) -> None:
    metadata = json.loads((assembly / f"{STACK_NAME}.metadata.json").read_text(encoding="utf-8"))
    accepted = {
        (rule, reason)
        for entries in metadata.values()
        for entry in entries
        if entry["type"] == "aws:cdk:acknowledged-rules"
        for rule, reason in entry["data"].items()
    }
    assert all(len(reason.split()) >= 5 for _, reason in accepted)
    kinds = {rule.partition("[")[0].removeprefix("Annotation::") for rule, _ in accepted}
    assert kinds == {f"AwsSolutions-{rule}" for rule in ("S1", "L1", "IAM5", "SF1", "SF2")}
    assert not [rule for rule, _ in accepted if "[Action::" in rule or "[Resource::*]" in rule]


def test_no_image_is_built(assembly: Path) -> None:
    manifest = json.loads((assembly / f"{STACK_NAME}.assets.json").read_text(encoding="utf-8"))
    assert manifest["dockerImages"] == {}
