"""What a deployment may choose. The values are in cdk.json; `cdk deploy -c alluvia:<name>=…` overrides one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches

from infra.setting_values import (
    PREFIX,
    BackfillSource,
    WebhookSecret,
    email,
    number,
    number_or_none,
    one_of,
    origins,
    release,
    secrets,
    sources,
    whether,
)

QUERY_SECONDS_MAX = 27
"""Less than the time-out of the functions that run queries, so that a long query fails as a query."""
_RETENTION_HOURS_MAX = 87_600
JOBS_MAX, UPLOADS_MAX = 100, 1000
"""The most that the functions take for jobs, and for uploads of one caller."""
_TEXT_BYTES_MAX = 3_000
"""What the environment of a function, 4 KB, has left for the settings of tokens and of sites."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What `alluvia:<name>` of the app's context says, where every value is text.

    `ingest_mode`       queued (answer 202, commit from the queue) or direct (commit, then answer 200)
    `create_tables`     true if the first event may create its table, else false
    `sql_writes`        true for a function, behind POST /sql, that runs SQL that writes, else false
    `uploads`           true for a function, behind POST /v1/upload/{table}, that stores files, else false
    `publishing`        true for routes on which queries are published and withdrawn, else false
    `links`             true for the route of signed links to published queries, which is open to the internet, else
                        false
    `retention_hours`   how long vacuum keeps what no version names any more, 1 to 87600
    `alarm_email`       who gets the alarms; may be empty
    `backfill_sources`  s3://bucket, s3://bucket/folder or s3://bucket/file, separated by commas: what backfills may
                        read besides `incoming/`
    `heavy_upkeep`      true if merge and vacuum hand work that is beyond a function over to Spark, else false
    `emr_release`       the release label of EMR Serverless: one with Spark 4.0 or 4.1 and Python 3.13

    `auth`              whom the HTTP routes answer: iam (requests signed with AWS credentials), tokens (those who bear
                        a token of the lake) or jwt (one of an identity provider)
    `jwt_issuer`, `jwt_audience`  whose tokens are valid, and for whom they must be; only for jwt
    `jwt_scopes`        the claim with the scopes; empty: scope
    `jwt_scope_prefix`  what the provider puts in front of scopes of this lake, such as lake/; empty: nothing
    `jwt_where`, `jwt_hide`  a row filter, in which $name is a claim, and hidden columns, with spaces
    `cors_origins`      sites whose pages may call the routes from a browser, such as https://app.example.com, with
                        spaces between, or * for all; empty: none
    `webhooks`          true for the routes of webhook sources, which are open to the internet, else false
    `webhook_secrets`   secretsmanager:NAME and ssm:/NAME, separated by commas: what sources may name as secrets

    `ingest_rate`, `ingest_burst`  requests a second, and at once, of all routes but those of queries
    `query_rate`, `query_burst`    the same for queries: what is over it gets a 429
    `webhook_rate`, `webhook_burst`  the same for routes of webhook sources
    `query_bytes`       the most bytes of data files that one SELECT may read; empty: any number
    `query_seconds`     the most seconds that a query may take, 1 to 27
    `caller_jobs`       how many jobs one caller with a token may have queued or running, 1 to 100; empty: one less than
                        `job_concurrency`, which is the most in any case
    `caller_result_bytes`  bytes of large results that one caller with a token may have valid links to; empty: 5 GB
    `caller_uploads`    how many uploads in parts one caller with a token may have begun and not completed, 1 to 1000;
                        empty: 10
    `caller_upload_bytes`  the bytes of these uploads together; empty: 4 GiB

    `ingest_concurrency`  how many ingest functions are set aside, and may run, for HTTP; empty: none set aside
    `query_concurrency`, `sql_concurrency`, `upload_concurrency`  the same for queries, for SQL that writes and for
                        uploads. Lambda wants 100 of the account's concurrent executions left for all, so an account
                        with fewer, such as a new one, can set none aside
    `job_concurrency`   how many jobs (queries whose senders do not wait) may be queued or running, 1 to 100: what is
                        over it gets a 429
    `commit_concurrency`  how many functions may commit from the queue at once, 2 to 1000
    `merge_concurrency`, `pipeline_concurrency`, `vacuum_concurrency`  how many may merge tables, run tables of
                        pipelines, and vacuum tables at once, 2 to 1000
    """

    ingest_mode: str = "queued"
    create_tables: bool = False
    sql_writes: bool = False
    uploads: bool = False
    publishing: bool = False
    links: bool = False
    auth: str = "iam"
    jwt_issuer: str | None = None
    jwt_audience: str | None = None
    jwt_scopes: str | None = None
    jwt_scope_prefix: str | None = None
    jwt_where: str | None = None
    jwt_hide: str | None = None
    cors_origins: tuple[str, ...] = ()
    retention_hours: int = 168
    alarm_email: str | None = None
    backfill_sources: tuple[BackfillSource, ...] = ()
    heavy_upkeep: bool = True
    emr_release: str = "emr-spark-8.0.0"
    ingest_rate: int = 500
    ingest_burst: int = 1000
    query_rate: int = 20
    query_burst: int = 40
    query_bytes: int | None = None
    query_seconds: int = 25
    webhooks: bool = False
    webhook_secrets: tuple[WebhookSecret, ...] = ()
    webhook_rate: int = 100
    webhook_burst: int = 200
    caller_jobs: int | None = None
    caller_result_bytes: int | None = None
    caller_uploads: int | None = None
    caller_upload_bytes: int | None = None
    ingest_concurrency: int | None = None
    query_concurrency: int | None = None
    sql_concurrency: int | None = None
    upload_concurrency: int | None = None
    job_concurrency: int = 4
    commit_concurrency: int = 8
    merge_concurrency: int = 4
    pipeline_concurrency: int = 4
    vacuum_concurrency: int = 2


DEFAULT = Settings()


def read_settings(context: Mapping[str, object]) -> Settings:
    """Return the settings of the app's context; other names, such as CDK's own flags, are ignored.

    Raises ValueError, naming the setting, for an unknown name of ours or a value that does not fit.
    """
    given = {name: str(value).strip() for name, value in context.items() if name.startswith(PREFIX)}
    unknown = set(given) - {PREFIX + name for name in Settings.__dataclass_fields__}
    if unknown:
        near = get_close_matches(min(unknown), (PREFIX + name for name in Settings.__dataclass_fields__), 1, 0.7)
        fix = f"did you mean {near[0]}?" if near else "infra/settings.py has those that exist"
        raise ValueError(f"unknown setting {min(unknown)}: {fix}")
    values = {name.removeprefix(PREFIX): value for name, value in given.items() if value}
    settings = DEFAULT
    for read in (_with_parts, _with_callers, _with_webhooks, _with_limits, _with_concurrency):
        settings = read(settings, values)
    return settings


def _with_parts(settings: Settings, values: Mapping[str, str]) -> Settings:
    """Return settings with what is deployed, and how the lake is kept."""
    return replace(
        settings,
        ingest_mode=one_of("ingest_mode", values.get("ingest_mode", DEFAULT.ingest_mode), ("queued", "direct")),
        create_tables=whether("create_tables", values),
        sql_writes=whether("sql_writes", values),
        uploads=whether("uploads", values),
        publishing=whether("publishing", values),
        links=whether("links", values),
        retention_hours=number("retention_hours", values, DEFAULT.retention_hours, 1, _RETENTION_HOURS_MAX),
        alarm_email=email("alarm_email", values["alarm_email"]) if "alarm_email" in values else None,
        backfill_sources=sources("backfill_sources", values.get("backfill_sources", "")),
        heavy_upkeep=whether("heavy_upkeep", values, DEFAULT.heavy_upkeep),
        emr_release=release("emr_release", values.get("emr_release", DEFAULT.emr_release)),
    )


def _with_callers(settings: Settings, values: Mapping[str, str]) -> Settings:
    """Return settings with whom the routes answer."""
    auth = one_of("auth", values.get("auth", DEFAULT.auth), ("iam", "tokens", "jwt"))
    _check_jwt(auth, values)
    cors_origins = origins("cors_origins", values.get("cors_origins", ""))
    _check_bytes(values, cors_origins)
    return replace(
        settings,
        auth=auth,
        jwt_issuer=values.get("jwt_issuer"),
        jwt_audience=values.get("jwt_audience"),
        jwt_scopes=values.get("jwt_scopes"),
        jwt_scope_prefix=values.get("jwt_scope_prefix"),
        jwt_where=values.get("jwt_where"),
        jwt_hide=values.get("jwt_hide"),
        cors_origins=cors_origins,
    )


def _with_webhooks(settings: Settings, values: Mapping[str, str]) -> Settings:
    """Return settings with the routes of webhook sources."""
    webhooks = whether("webhooks", values)
    if "webhook_secrets" in values and not webhooks:
        raise ValueError(f"{PREFIX}webhook_secrets is set, but {PREFIX}webhooks is false: set it to true")
    return replace(
        settings,
        webhooks=webhooks,
        webhook_secrets=secrets("webhook_secrets", values.get("webhook_secrets", "")),
        webhook_rate=number("webhook_rate", values, DEFAULT.webhook_rate),
        webhook_burst=number("webhook_burst", values, DEFAULT.webhook_burst),
    )


def _with_limits(settings: Settings, values: Mapping[str, str]) -> Settings:
    """Return settings with how much all callers may ask for, one query, and one caller."""
    return replace(
        settings,
        ingest_rate=number("ingest_rate", values, DEFAULT.ingest_rate),
        ingest_burst=number("ingest_burst", values, DEFAULT.ingest_burst),
        query_rate=number("query_rate", values, DEFAULT.query_rate),
        query_burst=number("query_burst", values, DEFAULT.query_burst),
        query_bytes=number_or_none("query_bytes", values),
        query_seconds=number("query_seconds", values, DEFAULT.query_seconds, 1, QUERY_SECONDS_MAX),
        caller_jobs=number_or_none("caller_jobs", values, JOBS_MAX),
        caller_result_bytes=number_or_none("caller_result_bytes", values),
        caller_uploads=number_or_none("caller_uploads", values, UPLOADS_MAX),
        caller_upload_bytes=number_or_none("caller_upload_bytes", values),
    )


def _with_concurrency(settings: Settings, values: Mapping[str, str]) -> Settings:
    """Return settings with how many functions may run at once."""
    return replace(
        settings,
        ingest_concurrency=number_or_none("ingest_concurrency", values),
        query_concurrency=number_or_none("query_concurrency", values),
        sql_concurrency=number_or_none("sql_concurrency", values),
        upload_concurrency=number_or_none("upload_concurrency", values),
        job_concurrency=number("job_concurrency", values, DEFAULT.job_concurrency, 1, JOBS_MAX),
        commit_concurrency=number("commit_concurrency", values, DEFAULT.commit_concurrency, 2, 1000),
        merge_concurrency=number("merge_concurrency", values, DEFAULT.merge_concurrency, 2, 1000),
        pipeline_concurrency=number("pipeline_concurrency", values, DEFAULT.pipeline_concurrency, 2, 1000),
        vacuum_concurrency=number("vacuum_concurrency", values, DEFAULT.vacuum_concurrency, 2, 1000),
    )


def _check_jwt(auth: str, values: Mapping[str, str]) -> None:
    given = sorted(name for name in values if name.startswith("jwt_"))
    missing = [name for name in ("jwt_issuer", "jwt_audience") if name not in values]
    if auth == "jwt" and missing:
        raise ValueError(f"{PREFIX}{missing[0]} is not set: {PREFIX}auth is jwt, so say whose tokens are valid")
    if auth != "jwt" and given:
        raise ValueError(f"{PREFIX}{given[0]} is set, but {PREFIX}auth is {auth}: set it to jwt")
    if auth == "jwt" and not values["jwt_issuer"].startswith("https://"):
        raise ValueError(f"{PREFIX}jwt_issuer is {values['jwt_issuer']!r}: it must be an https URL")


def _check_bytes(values: Mapping[str, str], cors_origins: tuple[str, ...]) -> None:
    tokens = sum(len(value.encode()) for name, value in values.items() if name.startswith("jwt_"))
    if tokens > _TEXT_BYTES_MAX:
        raise ValueError(f"{PREFIX}jwt_where and the other settings of tokens have more than {_TEXT_BYTES_MAX} bytes")
    left = _TEXT_BYTES_MAX - tokens
    if len(" ".join(cors_origins)) > left:
        raise ValueError(
            f"{PREFIX}cors_origins has more than the {left} bytes that the settings of tokens leave of "
            f"{_TEXT_BYTES_MAX}: name fewer sites"
        )
