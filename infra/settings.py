"""What a deployment may choose. The values are in cdk.json; `cdk deploy -c alluvia:<name>=…` overrides one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

PREFIX = "alluvia:"
QUERY_SECONDS_MAX = 27
"""Less than the time-out of the functions that run queries, so that a long query fails as a query."""
_S3_URI = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>[A-Za-z0-9!_.'()/-]*))?")
_SECRET = re.compile(
    r"(?P<place>secretsmanager|ssm):(?P<name>arn:aws[a-z-]*:(?P=place):[A-Za-z0-9/_+=.@:-]+|[A-Za-z0-9/_+=.@-]+)"
)
_RETENTION_HOURS_MAX = 87_600
_JWT_BYTES_MAX = 3_000
"""What the environment of a function, 4 KB, has left for the settings of tokens."""
_RELEASE = re.compile(r"emr-spark-8\.[0-9]{1,2}\.[0-9]{1,2}")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")


@dataclass(frozen=True, slots=True)
class BackfillSource:
    """A folder of a bucket, or an object, that backfills may read. `prefix` is empty or ends in a slash."""

    bucket: str
    prefix: str


@dataclass(frozen=True, slots=True)
class WebhookSecret:
    """A secret that the function of webhooks may read: in secretsmanager or ssm, by its name or ARN."""

    place: str
    name: str


@dataclass(frozen=True, slots=True)
class Settings:
    """See `read_settings` for the names and what they mean."""

    ingest_mode: str = "queued"
    create_tables: bool = False
    sql_writes: bool = False
    uploads: bool = False
    publishing: bool = False
    auth: str = "iam"
    jwt_issuer: str | None = None
    jwt_audience: str | None = None
    jwt_scopes: str | None = None
    jwt_scope_prefix: str | None = None
    jwt_where: str | None = None
    jwt_hide: str | None = None
    cors_origins: str | None = None
    retention_hours: int = 168
    alarm_email: str | None = None
    backfill_sources: tuple[BackfillSource, ...] = ()
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
    ingest_concurrency: int | None = None
    query_concurrency: int | None = None
    sql_concurrency: int | None = None
    upload_concurrency: int | None = None
    job_concurrency: int = 4
    commit_concurrency: int = 8
    merge_concurrency: int = 4
    vacuum_concurrency: int = 2


def read_settings(context: Mapping[str, object]) -> Settings:
    """Settings from the app's context, where every value is text.

    `alluvia:ingest_mode`       queued (answer 202, commit from the queue) or direct (commit, then answer 200)
    `alluvia:create_tables`     true if the first event may create its table, else false
    `alluvia:sql_writes`        true for a function, behind POST /sql, that runs SQL that writes, else false
    `alluvia:uploads`           true for a function, behind POST /v1/upload/{table}, that stores files, else false
    `alluvia:publishing`        true for routes on which queries are published and withdrawn, else false
    `alluvia:auth`              whom the HTTP routes answer: iam (requests signed with AWS credentials), tokens (those
                                who bear a token of the lake) or jwt (one of an identity provider)
    `alluvia:jwt_issuer`, `alluvia:jwt_audience`  whose tokens are valid, and for whom they must be; only for jwt
    `alluvia:jwt_scopes`        the claim with the scopes; empty: scope
    `alluvia:jwt_scope_prefix`  what the provider puts in front of scopes of this lake, such as lake/; empty: nothing
    `alluvia:jwt_where`, `alluvia:jwt_hide`  a row filter, in which $name is a claim, and hidden columns, with spaces
    `alluvia:cors_origins`      sites whose pages may call the routes from a browser, such as https://app.example.com,
                                with spaces between, or * for all; empty: none
    `alluvia:retention_hours`   how long vacuum keeps what no version names any more, 1 to 87600
    `alluvia:alarm_email`       who gets the alarms; may be empty
    `alluvia:backfill_sources`  s3://bucket, s3://bucket/folder or s3://bucket/file, separated by commas: what backfills
                                may read besides `incoming/`
    `alluvia:emr_release`       the release label of EMR Serverless: one with Spark 4.0 or 4.1 and Python 3.13

    `alluvia:ingest_rate`, `alluvia:ingest_burst`  requests a second, and at once, of all routes but those of queries
    `alluvia:query_rate`, `alluvia:query_burst`    the same for queries: what is over it gets a 429
    `alluvia:query_bytes`       the most bytes of data files that one SELECT may read; empty: any number
    `alluvia:query_seconds`     the most seconds that a query may take, 1 to 27
    `alluvia:webhooks`          true for the routes of webhook sources, which are open to the internet, else false
    `alluvia:webhook_secrets`   secretsmanager:NAME and ssm:/NAME, separated by commas: what sources may name as secrets
    `alluvia:webhook_rate`, `alluvia:webhook_burst`  requests a second, and at once, of these routes
    `alluvia:ingest_concurrency`  how many ingest functions are set aside, and may run, for HTTP; empty: none set aside
    `alluvia:query_concurrency`, `alluvia:sql_concurrency`, `alluvia:upload_concurrency`  the same for queries, for SQL
                                  that writes and for uploads. Lambda wants 100 of the account's concurrent executions
                                  left for all, so an account with fewer, such as a new one, can set none aside
    `alluvia:job_concurrency`   how many jobs (queries whose senders do not wait) may be queued or running, 1 to 100:
                                what is over it gets a 429
    `alluvia:commit_concurrency`  how many functions may commit from the queue at once, 2 to 1000
    `alluvia:merge_concurrency`, `alluvia:vacuum_concurrency`  how many may merge, and vacuum, tables at once, 2 to 1000

    Other names, such as CDK's own flags, are ignored.

    Raises ValueError, naming the setting, for an unknown name of ours or a value that does not fit.
    """
    given = {name: str(value).strip() for name, value in context.items() if name.startswith(PREFIX)}
    values = {name.removeprefix(PREFIX): value for name, value in given.items() if value}
    unknown = set(given) - {PREFIX + name for name in Settings.__dataclass_fields__}
    if unknown:
        raise ValueError(f"unknown setting {min(unknown)}: see infra/settings.py for those that there are")
    default = Settings()
    auth = _one_of("auth", values.get("auth", default.auth), ("iam", "tokens", "jwt"))
    _check_jwt(auth, values)
    webhooks = _whether("webhooks", values)
    if "webhook_secrets" in values and not webhooks:
        raise ValueError(f"{PREFIX}webhook_secrets is set, but {PREFIX}webhooks is false: set it to true")
    return Settings(
        ingest_mode=_one_of("ingest_mode", values.get("ingest_mode", default.ingest_mode), ("queued", "direct")),
        create_tables=_whether("create_tables", values),
        sql_writes=_whether("sql_writes", values),
        uploads=_whether("uploads", values),
        publishing=_whether("publishing", values),
        auth=auth,
        jwt_issuer=values.get("jwt_issuer"),
        jwt_audience=values.get("jwt_audience"),
        jwt_scopes=values.get("jwt_scopes"),
        jwt_scope_prefix=values.get("jwt_scope_prefix"),
        jwt_where=values.get("jwt_where"),
        jwt_hide=values.get("jwt_hide"),
        cors_origins=_origins("cors_origins", values["cors_origins"]) if "cors_origins" in values else None,
        retention_hours=_number("retention_hours", values, default.retention_hours, 1, _RETENTION_HOURS_MAX),
        alarm_email=_email("alarm_email", values["alarm_email"]) if "alarm_email" in values else None,
        backfill_sources=_sources("backfill_sources", values.get("backfill_sources", "")),
        emr_release=_release("emr_release", values.get("emr_release", default.emr_release)),
        ingest_rate=_number("ingest_rate", values, default.ingest_rate),
        ingest_burst=_number("ingest_burst", values, default.ingest_burst),
        query_rate=_number("query_rate", values, default.query_rate),
        query_burst=_number("query_burst", values, default.query_burst),
        query_bytes=_number_or_none("query_bytes", values),
        query_seconds=_number("query_seconds", values, default.query_seconds, 1, QUERY_SECONDS_MAX),
        webhooks=webhooks,
        webhook_secrets=_secrets("webhook_secrets", values.get("webhook_secrets", "")),
        webhook_rate=_number("webhook_rate", values, default.webhook_rate),
        webhook_burst=_number("webhook_burst", values, default.webhook_burst),
        ingest_concurrency=_number_or_none("ingest_concurrency", values),
        query_concurrency=_number_or_none("query_concurrency", values),
        sql_concurrency=_number_or_none("sql_concurrency", values),
        upload_concurrency=_number_or_none("upload_concurrency", values),
        job_concurrency=_number("job_concurrency", values, default.job_concurrency, 1, 100),
        commit_concurrency=_number("commit_concurrency", values, default.commit_concurrency, 2, 1000),
        merge_concurrency=_number("merge_concurrency", values, default.merge_concurrency, 2, 1000),
        vacuum_concurrency=_number("vacuum_concurrency", values, default.vacuum_concurrency, 2, 1000),
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
    if sum(len(values[name].encode()) for name in given) > _JWT_BYTES_MAX:
        raise ValueError(f"{PREFIX}jwt_where and the other settings of tokens have more than {_JWT_BYTES_MAX} bytes")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{PREFIX}{name} is {value!r}: it must be {' or '.join(allowed)}")
    return value


def _whether(name: str, values: Mapping[str, str]) -> bool:
    return _one_of(name, values.get(name, "false").lower(), ("true", "false")) == "true"


def _number(name: str, values: Mapping[str, str], default: int, least: int = 1, most: int | None = None) -> int:
    value = values.get(name, str(default))
    fits = value.isascii() and value.isdigit() and least <= int(value) and (most is None or int(value) <= most)
    if not fits:
        bounds = f"{least} or more" if most is None else f"{least} to {most}"
        raise ValueError(f"{PREFIX}{name} is {value!r}: it must be a whole number, {bounds}")
    return int(value)


def _number_or_none(name: str, values: Mapping[str, str]) -> int | None:
    return _number(name, values, 0) if name in values else None


def _email(name: str, value: str) -> str:
    if _EMAIL.fullmatch(value) is None:
        raise ValueError(f"{PREFIX}{name} is {value!r}: it must be an email address, or empty")
    return value


def _origins(name: str, value: str) -> str:
    for text in value.split():
        if text != "*" and _ORIGIN.fullmatch(text) is None:
            raise ValueError(
                f"{PREFIX}{name} holds {text!r}: each part must be a site, such as https://app.example.com"
            )
    return value


def _release(name: str, value: str) -> str:
    if _RELEASE.fullmatch(value) is None:
        raise ValueError(f"{PREFIX}{name} is {value!r}: it must be a release with Spark 4, such as emr-spark-8.0.0")
    return value


def _sources(name: str, value: str) -> tuple[BackfillSource, ...]:
    sources = []
    for text in filter(None, (part.strip() for part in value.split(","))):
        match = _S3_URI.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{PREFIX}{name} holds {text!r}: each part must be s3://bucket or s3://bucket/prefix, without wildcards"
            )
        prefix = match["prefix"] or ""
        sources.append(BackfillSource(match["bucket"], f"{prefix.rstrip('/')}/" if prefix else ""))
    return tuple(sources)


def _secrets(name: str, value: str) -> tuple[WebhookSecret, ...]:
    secrets = []
    for text in filter(None, (part.strip() for part in value.split(","))):
        match = _SECRET.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{PREFIX}{name}: each part must be secretsmanager:NAME, ssm:/NAME, or either with an ARN, "
                "without wildcards; one is something else, and is not shown, since it may be a secret"
            )
        secrets.append(WebhookSecret(match["place"], match["name"]))
    return tuple(secrets)
