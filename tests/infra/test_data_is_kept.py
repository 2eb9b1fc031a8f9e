"""No function may write over data without a condition: asked of IAM's rules, of each role and of the bucket."""

from __future__ import annotations

from typing import Any

import pytest

from infra.sources import Sources
from tests.infra.conftest import read_template, synthesise
from tests.infra.policies import EVERYTHING, Statement, allowed, statements_of_role
from tests.infra.test_access_is_kept import ROLES, may
from tests.infra.test_bucket import bucket_statements, denied
from tests.infra.test_privileges import lake, role_id

Template = dict[str, Any]
WRITERS = ("Commit", "Merge", "Pipeline", "Sql", "Upload", "Vacuum", "Job", "Upkeep")
"""Those that may put anything below the lake's prefix; Ingest puts rejects."""
KEPT = (
    "t/ts_day=2026-11-01/part-0.parquet",
    "t/deletion_vector_0.bin",
    "t/_change_data/cdc-0.parquet",
    "t/_delta_log/00000000000000000010.checkpoint.parquet",
    "t/_delta_log/00000000000000000010.checkpoint.0.parquet",
    "t/_delta_log/_sidecars/0.parquet",
    "t/_delta_log/00000000000000000010.json",
    "t/_delta_log/.alluvia_dropped.0",
    "t/_rejects/part-0.parquet",
    "t/a new kind of file",
    "_alluvia.conditional-writes.json",
    "_alluvia/branches/0/t/part-0.parquet",
    "_alluvia/branches/0/t/deletion_vector_0.bin",
    "_alluvia/branches/0/t/_delta_log/00000000000000000010.checkpoint.parquet",
    "_alluvia/streams/s/_delta_log/00000000000000000010.checkpoint.parquet",
    "_alluvia/streams/s/_delta_log/00000000000000000010.json",
)
REWRITTEN = (
    "t/_delta_log/_last_checkpoint",
    "t/_alluvia/vacuum.json",
    "t/_alluvia/window/00000000000000000010.arrow",
    "t/_alluvia/scratch/backfill/runs/0/plan.json",
    "_alluvia/results/large/0.parquet",
    "_alluvia/jobs/0/alive.json",
    "_alluvia/branches/0/t/_delta_log/_last_checkpoint",
    "_alluvia/streams/s/_delta_log/_last_checkpoint",
)
ON_CONDITION: tuple[dict[str, str], ...] = ({"none_match": "*"}, {"match": '"e"'})
IN_PARTS = {"creates": "false"}
"""A request that begins an upload in parts, or sends one."""


@pytest.fixture(scope="module")
def whole(placeholders: Sources, tmp_path_factory: pytest.TempPathFactory) -> Template:
    settings = {"sql_writes": "true", "uploads": "true", "webhooks": "true", "create_tables": "true"}
    return read_template(synthesise(placeholders, tmp_path_factory.mktemp("whole"), **settings))


def by(template: Template, role: str, policy: list[Statement], key: str, **request: str) -> bool:
    """Whether one policy, by itself, lets a role put an object that all else allows it to put."""
    given = {"principal": f"{{{role_id(template, role)}.Arn}}", "secure": "true", "tls": "1.3", **request}
    return allowed([EVERYTHING, *policy], "s3:PutObject", lake(template, f"lake/{key}"), **given)


@pytest.mark.parametrize("role", ROLES)
def test_no_role_writes_over_data_without_a_look(whole: Template, role: str) -> None:
    own, bucket = statements_of_role(whole, role_id(whole, role)), bucket_statements(whole)
    for key in KEPT:
        assert not may(whole, role, "s3:PutObject", key), key
        for policy in (own, bucket):  # each of both policies is enough
            assert not by(whole, role, policy, key), key
            assert all(by(whole, role, policy, key, **request) for request in ON_CONDITION), key
        if not key.endswith(".json"):
            assert all(by(whole, role, policy, key, **IN_PARTS) for policy in (own, bucket)), key


@pytest.mark.parametrize("role", WRITERS)
def test_writers_put_what_is_new_and_replace_what_they_have_read(whole: Template, role: str) -> None:
    for key in KEPT:
        assert all(may(whole, role, "s3:PutObject", key, **request) for request in ON_CONDITION), key


@pytest.mark.parametrize("role", WRITERS)
def test_writers_keep_records_up_to_date(whole: Template, role: str) -> None:
    assert all(may(whole, role, "s3:PutObject", key) for key in REWRITTEN)


def test_nothing_is_denied_of_what_people_do(whole: Template) -> None:
    assert not any(denied(whole, "s3:PutObject", f"lake/{key}") for key in KEPT if not key.endswith("10.json"))


def test_the_roles_put_nowhere_but_in_the_lake(whole: Template) -> None:
    """So a denial of all that is not listed denies nothing else."""
    for role in ROLES:
        for statement in statements_of_role(whole, role_id(whole, role)):
            if statement["Effect"] == "Allow" and "s3:PutObject" in statement["Action"]:
                assert allowed([statement], "s3:PutObject", lake(whole, "lake/t/_rejects/_alluvia/results/jobs/x")) or (
                    role in ("Query", "Jobs")
                )
