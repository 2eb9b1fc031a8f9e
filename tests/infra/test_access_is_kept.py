"""No function may change who may do what: asked of IAM's rules, of each role and of the bucket, key by key."""

from __future__ import annotations

from typing import Any

import pytest

from infra.sources import Sources
from tests.infra.conftest import read_template, synthesise
from tests.infra.policies import EVERYTHING, allowed, statements_of_role, text, the_id
from tests.infra.test_bucket import bucket_statements
from tests.infra.test_privileges import lake, role_id

Template = dict[str, Any]
ROLES = (
    "Ingest",
    "Commit",
    "Merge",
    "Pipeline",
    "Query",
    "Jobs",
    "Sql",
    "Upload",
    "Vacuum",
    "Backfill",
    "Job",
    "Upkeep",
)
ACCESS = ("tokens/keys/k.json", "tokens/issued/t.json", "tokens/revoked/1-t", "sources.toml")
PUBLISHED = "queries/top/00000000000000000000.json"
REQUESTS: tuple[dict[str, str], ...] = ({}, {"none_match": "*"}, {"match": '"e"'})


@pytest.fixture(scope="module")
def whole(placeholders: Sources, tmp_path_factory: pytest.TempPathFactory) -> Template:
    """The stack with all that can be switched on, except publishing."""
    settings = {"sql_writes": "true", "uploads": "true", "webhooks": "true", "create_tables": "true"}
    return read_template(synthesise(placeholders, tmp_path_factory.mktemp("whole"), **settings))


@pytest.fixture(scope="module")
def publishing(placeholders: Sources, tmp_path_factory: pytest.TempPathFactory) -> Template:
    return read_template(synthesise(placeholders, tmp_path_factory.mktemp("publishing"), publishing="true"))


def may(template: Template, role: str, action: str, key: str, **request: str) -> bool:
    """Whether a role may do something with a key of the lake, by its own policies and those of the bucket."""
    identity = role_id(template, role)
    denials = [each for each in bucket_statements(template) if each["Effect"] == "Deny"]
    given = {"principal": f"{{{identity}.Arn}}", "secure": "true", "tls": "1.3", **request}
    return allowed([*statements_of_role(template, identity), *denials], action, lake(template, f"lake/{key}"), **given)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("action", ["s3:PutObject", "s3:DeleteObject"])
@pytest.mark.parametrize("key", [*ACCESS, PUBLISHED])
def test_no_role_writes_what_gives_rights(whole: Template, role: str, action: str, key: str) -> None:
    assert not any(may(whole, role, action, f"_alluvia/{key}", **request) for request in REQUESTS)
    identity = role_id(whole, role)
    resource, principal = lake(whole, f"lake/_alluvia/{key}"), f"{{{identity}.Arn}}"
    for request in REQUESTS:  # each of both policies is enough
        own = [EVERYTHING, *statements_of_role(whole, identity)]
        assert not allowed(own, action, resource, principal=principal, **request)
        given = {"principal": principal, "secure": "true", "tls": "1.3", **request}
        assert not allowed([EVERYTHING, *bucket_statements(whole)], action, resource, **given)


def test_people_write_it_by_the_command_line(whole: Template) -> None:
    given = {"principal": "arn:aws:iam::123456789012:user/ada", "secure": "true", "tls": "1.3"}
    for key in (*ACCESS, PUBLISHED):
        resource = lake(whole, f"lake/_alluvia/{key}")
        assert allowed([EVERYTHING, *bucket_statements(whole)], "s3:PutObject", resource, **given)


def test_only_the_role_of_queries_publishes_and_only_where_the_settings_say(publishing: Template) -> None:
    roles = tuple(role for role in ROLES if role not in ("Sql", "Upload"))
    found = {role for role in roles if may(publishing, role, "s3:PutObject", f"_alluvia/{PUBLISHED}")}
    assert found == {"Query"}
    assert not any(may(publishing, role, "s3:PutObject", f"_alluvia/{key}") for role in roles for key in ACCESS)


def test_all_of_it_is_read(whole: Template) -> None:
    for key in (*ACCESS, PUBLISHED):
        for role in ("Ingest", "Query", "Sql"):
            assert may(whole, role, "s3:GetObject", f"_alluvia/{key}")


def test_the_roles_are_those_of_the_stack(whole: Template) -> None:
    (statement,) = (each for each in bucket_statements(whole) if each.get("Sid") == "AccessIsKept")
    named = {text(each) for each in statement["Condition"]["ArnEquals"]["aws:PrincipalArn"]}
    assert named == {f"{{{role_id(whole, role)}.Arn}}" for role in ROLES}
    assert the_id(whole, "AWS::S3::BucketPolicy", "StorageLakePolicy")
