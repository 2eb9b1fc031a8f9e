"""Applies the metric filters of a template to log lines, as CloudWatch does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from tests.infra.policies import resources_of

TERM = re.compile(r"\$\.(\w+) >= (\d+)")
Datapoint = tuple[str, tuple[tuple[str, str], ...], float]


def datapoints(template: dict[str, Any], log_group: str, lines: Iterable[str]) -> list[Datapoint]:
    """Metric, dimensions and value of each datapoint that the lines of one log group make."""
    found: list[Datapoint] = []
    for line in lines:
        fields = json.loads(line)
        for each in resources_of(template, "AWS::Logs::MetricFilter").values():
            if each["LogGroupName"] != {"Ref": log_group} or not matches(each["FilterPattern"], fields):
                continue
            (change,) = each["MetricTransformations"]
            given = change.get("Dimensions", [])
            chosen = tuple((dimension["Key"], str(value(dimension["Value"], fields))) for dimension in given)
            found.append((change["MetricName"], chosen, float(value(change["MetricValue"], fields))))
    return sorted(found)


def matches(pattern: str, fields: dict[str, Any]) -> bool:
    """Whether a line with these fields matches a pattern: comparisons of numbers, joined by `and`."""
    terms = pattern.removeprefix("{ ").removesuffix(" }").split(" && ")
    for term in terms:
        match = TERM.fullmatch(term.strip("()"))
        assert match is not None, pattern
        found = fields.get(match[1])
        if isinstance(found, bool) or not isinstance(found, (int, float)) or found < int(match[2]):
            return False
    return True


def value(text: str, fields: dict[str, Any]) -> Any:
    return fields[text.removeprefix("$.")] if text.startswith("$.") else text
