from __future__ import annotations

from typing import Any

import pytest

from infra.setting_values import BackfillSource, WebhookSecret
from infra.settings import Settings, read_settings
from tests.infra.conftest import CDK_CONTEXT

WHOLE = (BackfillSource("two", ""), BackfillSource("three", ""))


def test_the_defaults_are_those_of_cdk_json() -> None:
    assert read_settings(CDK_CONTEXT) == Settings()
    assert read_settings({}) == Settings(
        ingest_mode="queued",
        create_tables=False,
        sql_writes=False,
        auth="iam",
        jwt_issuer=None,
        jwt_audience=None,
        jwt_scopes=None,
        jwt_scope_prefix=None,
        jwt_where=None,
        jwt_hide=None,
        cors_origins=(),
        retention_hours=168,
        alarm_email=None,
        backfill_sources=(),
        emr_release="emr-spark-8.0.0",
        ingest_rate=500,
        ingest_burst=1000,
        query_rate=20,
        query_burst=40,
        query_bytes=None,
        query_seconds=25,
        webhooks=False,
        webhook_secrets=(),
        webhook_rate=100,
        webhook_burst=200,
        caller_jobs=None,
        caller_result_bytes=None,
        caller_uploads=None,
        caller_upload_bytes=None,
        ingest_concurrency=None,
        query_concurrency=None,
        sql_concurrency=None,
        job_concurrency=4,
        commit_concurrency=8,
        merge_concurrency=4,
        pipeline_concurrency=4,
        vacuum_concurrency=2,
        uploads=False,
        publishing=False,
        links=False,
        upload_concurrency=None,
    )


GIVEN: dict[str, tuple[str, Any]] = {
    "ingest_mode": ("direct", "direct"),
    "create_tables": ("True", True),
    "sql_writes": ("true", True),
    "auth": ("jwt", "jwt"),
    "jwt_issuer": ("https://issuer.example", "https://issuer.example"),
    "jwt_audience": ("lake", "lake"),
    "jwt_scopes": ("permissions", "permissions"),
    "jwt_scope_prefix": ("lake/", "lake/"),
    "jwt_where": ("tenant = $tenant", "tenant = $tenant"),
    "jwt_hide": ("email phone", "email phone"),
    "cors_origins": (
        "https://app.example  https://other.example:8443 https://app.example",
        ("https://app.example", "https://other.example:8443"),
    ),
    "retention_hours": (" 24 ", 24),
    "alarm_email": ("oncall@example.com", "oncall@example.com"),
    "backfill_sources": (
        "s3://one-bucket/a/b/,s3://one-bucket/c,s3://two/,s3://three,",
        (BackfillSource("one-bucket", "a/b/"), BackfillSource("one-bucket", "c/"), *WHOLE),
    ),
    "emr_release": ("emr-spark-8.2.0", "emr-spark-8.2.0"),
    "heavy_upkeep": ("false", False),
    "ingest_rate": ("1", 1),
    "ingest_burst": ("2", 2),
    "query_rate": ("3", 3),
    "query_burst": ("4", 4),
    "query_bytes": ("1000000000000", 10**12),
    "query_seconds": ("27", 27),
    "webhooks": ("true", True),
    "webhook_secrets": (
        "secretsmanager:a/b, ssm:/c/d",
        (WebhookSecret("secretsmanager", "a/b"), WebhookSecret("ssm", "/c/d")),
    ),
    "webhook_rate": ("10", 10),
    "webhook_burst": ("11", 11),
    "caller_jobs": ("100", 100),
    "caller_result_bytes": ("12", 12),
    "caller_uploads": ("1000", 1000),
    "caller_upload_bytes": ("13", 13),
    "ingest_concurrency": ("5", 5),
    "query_concurrency": ("6", 6),
    "sql_concurrency": ("16", 16),
    "job_concurrency": ("17", 17),
    "commit_concurrency": ("7", 7),
    "merge_concurrency": ("8", 8),
    "pipeline_concurrency": ("8", 8),
    "vacuum_concurrency": ("9", 9),
    "uploads": ("true", True),
    "publishing": ("true", True),
    "links": ("true", True),
    "upload_concurrency": ("18", 18),
}
"""By the name of a setting: what cdk.json or `-c` gives, and what it means."""


def test_every_setting_is_read() -> None:
    assert {f"alluvia:{name}" for name in GIVEN} == {name for name in CDK_CONTEXT if name.startswith("alluvia:")}
    context = {f"alluvia:{name}": text for name, (text, _) in GIVEN.items()}
    expected = {name: value for name, (_, value) in GIVEN.items()}
    assert read_settings({"@aws-cdk/some:flag": True, **context}) == Settings(**expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ingest_mode", "both"),
        ("create_tables", "yes"),
        ("auth", "open"),
        ("auth", "none"),
        ("sql_writes", "1"),
        ("sql_concurrency", "0"),
        ("retention_hours", "0"),
        ("retention_hours", "-1"),
        ("retention_hours", "a week"),
        ("retention_hours", "87601"),
        ("alarm_email", "nobody"),
        ("cors_origins", "app.example"),
        ("cors_origins", "https://app.example/page"),
        ("cors_origins", "https://app.example,https://other.example"),
        ("cors_origins", "https://*.example"),
        ("cors_origins", "null"),
        ("caller_jobs", "0"),
        ("caller_jobs", "101"),
        ("caller_result_bytes", "5 GB"),
        ("caller_uploads", "1001"),
        ("caller_upload_bytes", "-1"),
        ("query_rate", "0"),
        ("query_burst", "many"),
        ("query_bytes", "0"),
        ("query_seconds", "0"),
        ("query_seconds", "28"),
        ("webhooks", "on"),
        ("webhook_rate", "0"),
        ("webhook_secrets", "hunter2"),
        ("webhook_secrets", "secretsmanager:*"),
        ("webhook_secrets", "secretsmanager:arn:aws:ssm:eu-central-1:1:parameter/a"),
        ("webhook_secrets", "ssm:/a,env:B"),
        ("query_concurrency", "0"),
        ("job_concurrency", "0"),
        ("job_concurrency", "101"),
        ("commit_concurrency", "1"),
        ("commit_concurrency", "1001"),
        ("merge_concurrency", "1"),
        ("vacuum_concurrency", "1001"),
        ("emr_release", "emr-7.13.0"),
        ("emr_release", "emr-spark-8"),
        ("backfill_sources", "one-bucket/a"),
        ("backfill_sources", "s3://one-bucket/*"),
        ("backfill_sources", "s3://*/a"),
        ("backfill_sources", "s3://one-bucket/a${x}"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"alluvia:{name}"):
        read_settings({"alluvia:webhooks": "true", f"alluvia:{name}": value})


def test_a_row_filter_must_fit_into_an_environment() -> None:
    where = f"tenant IN ({', '.join(map(str, range(1000)))})"
    jwt = {"auth": "jwt", "jwt_issuer": "https://issuer.example", "jwt_audience": "lake", "jwt_where": where}
    with pytest.raises(ValueError, match=r"alluvia:jwt_where.* more than 3000 bytes"):
        read_settings({f"alluvia:{name}": value for name, value in jwt.items()})


def test_sites_have_what_the_settings_of_tokens_leave_of_an_environment() -> None:
    sites = " ".join(f"https://{n:04}.example" for n in range(142))
    assert len(sites) == 2_981
    assert len(read_settings({"alluvia:cors_origins": sites}).cors_origins) == 142
    jwt = {"auth": "jwt", "jwt_issuer": "https://issuer.example", "jwt_audience": "lake", "cors_origins": sites}
    with pytest.raises(ValueError, match=r"alluvia:cors_origins has more than the 2974 bytes that the .* of 3000:"):
        read_settings({f"alluvia:{name}": value for name, value in jwt.items()})


def test_one_star_stands_for_all_sites() -> None:
    assert read_settings({"alluvia:cors_origins": "https://app.example *"}).cors_origins == ("*",)


def test_secrets_of_webhooks_without_their_routes_are_refused() -> None:
    with pytest.raises(ValueError, match="alluvia:webhook_secrets is set, but alluvia:webhooks is false"):
        read_settings({"alluvia:webhook_secrets": "ssm:/a"})


def test_what_may_be_a_secret_is_not_shown() -> None:
    with pytest.raises(ValueError, match="without wildcards") as error:
        read_settings({"alluvia:webhooks": "true", "alluvia:webhook_secrets": "hunter2"})
    assert "hunter2" not in str(error.value)


def test_an_unknown_setting_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="alluvia:ingest_mod:"):
        read_settings({"alluvia:ingest_mod": "direct"})


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"auth": "jwt"}, "jwt_issuer"),
        ({"auth": "jwt", "jwt_issuer": "https://issuer.example"}, "jwt_audience"),
        ({"auth": "jwt", "jwt_issuer": "http://issuer.example", "jwt_audience": "lake"}, "jwt_issuer"),
        ({"auth": "tokens", "jwt_where": "tenant = $tenant"}, "jwt_where"),
        ({"jwt_issuer": "https://issuer.example"}, "jwt_issuer"),
    ],
)
def test_settings_of_an_issuer_go_together(given: dict[str, str], named: str) -> None:
    with pytest.raises(ValueError, match=f"alluvia:{named}"):
        read_settings({f"alluvia:{name}": value for name, value in given.items()})
