"""Every deployment of a function is a version of its own, behind one alias that can be pointed back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.sources import Sources
from tests.infra.conftest import read_template, synthesise
from tests.infra.policies import resources_of, the_id
from tests.infra.test_compute import WITH_DUCKDB

Template = dict[str, Any]
VERSION = "AWS::Lambda::Version"
ALIAS = "AWS::Lambda::Alias"
NAMES = ("Ingest", "Commit", "Merge", "Pipeline", "Query", "Jobs", "Vacuum", "Backfill")


def version(template: Template, name: str) -> str:
    """The logical id of a function's version: CloudFormation publishes one when this changes."""
    return the_id(template, VERSION, f"Functions{name}CurrentVersion")


def published(before: Template, after: Template) -> set[str]:
    """The functions of which a deployment of `after` publishes a version."""
    return {name for name in NAMES if version(before, name) != version(after, name)}


@pytest.mark.parametrize("name", NAMES)
def test_the_alias_is_the_version_of_this_deployment(template: Template, name: str) -> None:
    alias = template["Resources"][the_id(template, ALIAS, f"Functions{name}Live")]["Properties"]
    assert alias["Name"] == "live"
    assert alias["FunctionName"] == {"Ref": the_id(template, "AWS::Lambda::Function", f"Functions{name}")}
    assert alias["FunctionVersion"] == {"Fn::GetAtt": [version(template, name), "Version"]}


@pytest.mark.parametrize("name", NAMES)
def test_older_versions_stay_to_go_back_to(template: Template, name: str) -> None:
    found = template["Resources"][version(template, name)]
    assert (found["DeletionPolicy"], found["UpdateReplacePolicy"]) == ("Retain", "Retain")


def test_the_same_sources_publish_nothing(template: Template, placeholders: Sources, tmp_path: Path) -> None:
    assert published(template, read_template(synthesise(placeholders, tmp_path))) == set()


def test_a_change_of_code_publishes_the_functions_that_have_it(
    template: Template, placeholders: Sources, tmp_path: Path
) -> None:
    code = tmp_path / "ingest" / "functions" / "ingest" / "handler.py"
    code.parent.mkdir(parents=True)
    code.write_text("NAME = 'changed'\n")
    changed = replace(placeholders, functions={**placeholders.functions, "ingest": tmp_path / "ingest"})
    assert published(template, read_template(synthesise(changed, tmp_path / "out"))) == {"Ingest", "Commit"}


@pytest.mark.parametrize(
    ("layer", "expected"), [("library", set(NAMES)), ("core", set(NAMES)), ("query", set(WITH_DUCKDB))]
)
def test_a_change_of_a_layer_publishes_the_functions_that_have_it(
    template: Template, placeholders: Sources, tmp_path: Path, layer: str, expected: set[str]
) -> None:
    """The library is a layer: most releases change nothing else."""
    module = tmp_path / "layer" / "python" / "changed.py"
    module.parent.mkdir(parents=True)
    module.write_text("NAME = 'changed'\n")
    changed = replace(placeholders, layers={**placeholders.layers, layer: tmp_path / "layer"})
    assert published(template, read_template(synthesise(changed, tmp_path / "out"))) == expected


def test_a_change_of_settings_publishes_the_functions_that_read_them(
    template: Template, placeholders: Sources, tmp_path: Path
) -> None:
    assert published(template, read_template(synthesise(placeholders, tmp_path, retention_hours="24"))) == {"Vacuum"}


def test_nothing_calls_a_function_but_by_its_alias(template: Template) -> None:
    """Of all that may call: the API's integrations, the rules' targets, the queue and the permissions."""
    functions = set(resources_of(template, "AWS::Lambda::Function"))
    callers = ("ApiGatewayV2::Integration", "Events::Rule", "Lambda::Permission")
    for kind in callers:
        assert functions.isdisjoint(referred(list(resources_of(template, f"AWS::{kind}").values()))), kind


def referred(value: object) -> set[str]:
    """The logical ids that a part of a template refers to."""
    match value:
        case {"Ref": str() as name}:
            return {name}
        case {"Fn::GetAtt": [str() as name, _]}:
            return {name}
        case dict():
            return set().union(*map(referred, value.values()))
        case list():
            return set().union(*map(referred, value))
    return set()
