"""The names of all settings, so that one that is misspelt is noticed when a server starts. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from alluvia.errors import Invalid
from alluvia.nearest_name import nearest

PREFIX = "ALLUVIA_"
_NAMES = (
    "ALLOW_HOST ALLOW_PUBLISH ALLOW_WRITES AUTH BODY_LIMIT_BYTES CACHE_CONTROL CALLER_JOBS "
    "CALLER_RESULT_BYTES CALLER_UPLOADS CALLER_UPLOAD_BYTES CODE_URI CORS_ORIGINS CREATE_TABLES "
    "CREATE_TABLES_MAX EMR_APPLICATION_ID EMR_ROLE_ARN EMR_UPKEEP_ROLE_ARN ENDPOINT_URL EVENT_LIMIT_BYTES "
    "FILE_CACHE_BYTES INFLATED_LIMIT_BYTES JOBS_FUNCTION JOB_CONCURRENCY JOB_SECONDS JWT_AUDIENCE JWT_HIDE JWT_ISSUER "
    "JWT_JWKS_URL JWT_SCOPES JWT_SCOPE_PREFIX JWT_WHERE LAKE LARGE_RESULTS_MB LOGS_TABLE MAX_RESULT_BYTES "
    "MERGE_MEMORY_MB MODE OUTSIDE QUERY_BYTES QUERY_MEMORY_MB QUERY_TIMEOUT_SECONDS QUEUE_URL "
    "READY_WRITES RESULT_CACHE RESULT_CACHE_HOURS RESULT_CACHE_MB RESULT_CACHE_RESULT_BYTES "
    "RESULT_LIMIT_BYTES RETENTION_HOURS SIGNING_KEY SPARK_UPKEEP_ARN TABLES_QUEUE_URL TARGET_FILE_BYTES TOKEN "
    "TOKEN_KEY TOKEN_KEYS UPLOADS_AT_ONCE UPLOAD_LIMIT_BYTES UPLOAD_MEMORY_BYTES UPLOAD_NAMES_MAX UPLOAD_SECONDS URL"
)
SETTINGS = frozenset(PREFIX + name for name in _NAMES.split())


def check_settings(variables: Iterable[str]) -> None:
    """Raise `Invalid` for a variable with a name like a setting's: the setting would not take effect."""
    for name in sorted(set(variables) - SETTINGS):
        near = nearest(name.removeprefix(PREFIX), (each.removeprefix(PREFIX) for each in SETTINGS))
        if name.startswith(PREFIX) and near:
            raise Invalid(f"{name} is not a setting: did you mean {PREFIX}{near[0]}?")
