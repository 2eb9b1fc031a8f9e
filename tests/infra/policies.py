"""Reads the policies of a template, and decides as IAM does what they let a role do."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Statement = Mapping[str, Any]
EVERYTHING: Statement = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}


def resources_of(template: Mapping[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    """The properties of the resources of a type, by logical id: at least one, or what is said of each says nothing."""
    items = template["Resources"].items()
    found = {name: resource.get("Properties", {}) for name, resource in items if resource["Type"] == kind}
    assert found, f"no resource is an {kind}"
    return found


def has_any(template: Mapping[str, Any], kind: str) -> bool:
    """Whether a template has a resource of a type."""
    return any(resource["Type"] == kind for resource in template["Resources"].values())


def the_id(template: Mapping[str, Any], kind: str, prefix: str) -> str:
    """The one logical id of that type that begins with `prefix`, be it with a hash of what the resource holds."""
    form = prefix + "[0-9A-F]{8}([0-9a-f]{32})?"
    (found,) = (name for name in resources_of(template, kind) if re.fullmatch(form, name))
    return found


def text(value: object) -> str:
    """A template's value as text: `{Id}` for a reference, `{Id.Attribute}` for an attribute."""
    match value:
        case str():
            return value
        case float():
            return str(value)
        case {"Ref": name}:
            return f"{{{name}}}"
        case {"Fn::GetAtt": [name, attribute]}:
            return f"{{{name}.{attribute}}}"
        case {"Fn::Sub": str() as template}:
            return re.sub(r"\$\{([^}]+)\}", r"{\1}", template)
        case {"Fn::Join": ["", [*parts]]}:
            return "".join(map(text, parts))
        case {"Fn::Select": [index, {"Fn::Split": [separator, whole]}]}:
            return f"{text(whole)}.split({separator!r})[{index}]"
    raise AssertionError(f"no rule to show {value!r}")


def many(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def statements_of_role(template: Mapping[str, Any], role: str) -> list[Statement]:
    """All statements of the role with this logical id. Managed policies would escape the tests: there must be none."""
    properties = template["Resources"][role]["Properties"]
    assert "ManagedPolicyArns" not in properties
    assert "Policies" not in properties
    assert not has_any(template, "AWS::IAM::ManagedPolicy")
    found = []
    for policy in resources_of(template, "AWS::IAM::Policy").values():
        if {"Ref": role} in policy["Roles"]:
            found += policy["PolicyDocument"]["Statement"]
    return found


class LakePolicies(NamedTuple):
    """What the roles of a stack may do in its bucket: its ARN and statements, and theirs by role, each with its ARN."""

    arn: str
    bucket: list[Statement]
    roles: dict[str, tuple[str, list[Statement]]]


def lake_policies(template: Mapping[str, Any]) -> LakePolicies:
    """Read all policies about the lake's bucket. Functions are named as in the stack, jobs `Job` and `Upkeep`."""
    bucket = the_id(template, "AWS::S3::Bucket", "StorageLake")
    policies = resources_of(template, "AWS::S3::BucketPolicy").values()
    (own,) = (each["PolicyDocument"]["Statement"] for each in policies if each["Bucket"] == {"Ref": bucket})
    found = {}
    for identity in resources_of(template, "AWS::IAM::Role"):
        if match := re.match("Functions(.+)Role[0-9A-F]{8}$|Spark(Job|Upkeep)Role", identity):
            found[match[1] or match[2]] = (f"{{{identity}.Arn}}", statements_of_role(template, identity))
    return LakePolicies(f"{{{bucket}.Arn}}", own, found)


def grants(statements: list[Statement]) -> Iterator[tuple[str, str]]:
    """Every action with every resource that a statement allows it on, whatever another denies."""
    for statement in statements:
        if statement["Effect"] == "Deny":
            continue
        for action in many(statement["Action"]):
            for resource in many(statement["Resource"]):
                yield action, text(resource)


def applies(statement: Statement, action: str, resource: str, request: Mapping[str, str]) -> bool:
    """Whether a statement is about this action on this resource in a request with these condition keys."""
    if not any(fnmatch.fnmatchcase(action.lower(), pattern.lower()) for pattern in many(statement["Action"])):
        return False
    named, wanted = ("Resource", True) if "Resource" in statement else ("NotResource", False)
    if wanted != any(fnmatch.fnmatchcase(resource, _glob(text(pattern))) for pattern in many(statement[named])):
        return False
    if action == "s3:PutObject":  # unless it begins an upload in parts, or sends one
        request = {"s3:ObjectCreationOperation": "true", **request}
    conditions = statement.get("Condition", {})
    return all(
        _holds(operator, request.get(key), [text(value) for value in many(wanted)])
        for operator, keys in conditions.items()
        for key, wanted in keys.items()
    )


def allowed(statements: list[Statement], action: str, resource: str, **request: str) -> bool:
    """Whether one of these statements allows it, and none denies it, as IAM decides within an account.

    Keys of the request: `prefix` for `s3:prefix` and so on.
    """
    keys = {
        "prefix": "s3:prefix",
        "service": "iam:PassedToService",
        "none_match": "s3:if-none-match",
        "match": "s3:if-match",
        "creates": "s3:ObjectCreationOperation",
        "principal": "aws:PrincipalArn",
        "secure": "aws:SecureTransport",
        "tls": "s3:TlsVersion",
    }
    named = {keys[name]: value for name, value in request.items()}
    found = {each["Effect"] for each in statements if applies(each, action, resource, named)}
    return found == {"Allow"}


def _glob(pattern: str) -> str:
    # Square brackets mean nothing in a policy.
    return pattern.replace("[", "[[]")


def _holds(operator: str, value: str | None, wanted: list[str]) -> bool:
    if operator == "Null":
        return (value is None) == (wanted == ["true"])
    if value is None:
        return False
    if operator in ("StringLike", "ArnLike"):
        return any(fnmatch.fnmatchcase(value, _glob(pattern)) for pattern in wanted)
    if operator in ("StringEquals", "Bool", "ArnEquals"):
        return value in wanted
    if operator == "NumericLessThan":
        return any(float(value) < float(limit) for limit in wanted)
    raise AssertionError(f"no rule for the operator {operator}")
