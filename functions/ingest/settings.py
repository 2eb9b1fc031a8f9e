"""What the ingest function reads from its environment, besides the lake."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field

from alluvia.access.rights import Rights
from alluvia.events.ingest.values import Limits
from alluvia.files.limits import FileLimits
from alluvia.lazy_dataclasses import dataclass
from alluvia.serverless.authorization import Authorization
from alluvia.serverless.settings import choice, number, text

SERVICE = os.environ.get("POWERTOOLS_SERVICE_NAME", "ingest")
"""What log lines call the function: its folder is deployed under several names."""
EVENTS_MAX = 100_000
"""Events of one request: more would not fit the memory of the function, however small they are."""
TABLES_MAX = 1000
"""Tables of a lake beyond which posts create none: any caller that may post may invent names."""
UPLOAD_SECONDS, UPLOAD_MEMORY_BYTES = 840, 1 << 30
UPLOADS = FileLimits(bytes_max=1 << 30, seconds=UPLOAD_SECONDS, memory_bytes=UPLOAD_MEMORY_BYTES)
"""What reading the file of an upload may take."""
CALLER_UPLOADS, CALLER_UPLOAD_BYTES = "ALLUVIA_CALLER_UPLOADS", "ALLUVIA_CALLER_UPLOAD_BYTES"
UPLOADS_OF_ONE, FILES_OF_ONE = 10, 4
"""Uploads in parts that one caller may have begun, and how many files of the largest size their bytes are."""
LOGS_TABLE = "logs"
"""Where the log records of POST /v1/logs go."""
_DEFAULT = Limits()


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """What is taken, and where to. `queue_url` is set if and only if events go into a queue."""

    queue_url: str | None
    create_tables: bool
    limits: Limits
    tables_max: int = TABLES_MAX
    logs_table: str = LOGS_TABLE
    files: FileLimits = UPLOADS
    authorization: Authorization = field(default_factory=Authorization)
    rights: Rights | None = None
    """What the sender of a request may do; None: all."""
    caller_uploads: int = UPLOADS_OF_ONE
    """Uploads in parts that one caller may have begun and not finished."""
    caller_upload_bytes: int | None = None
    """The bytes of these together; None: those of four files of the largest size."""

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> IngestSettings:
        """Read the settings. Invalid names the variable that is missing or unusable."""
        queued = choice(environment, "ALLUVIA_MODE", ("direct", "queued")) == "queued"
        why = "ALLUVIA_MODE is queued, so give it the queue's URL"
        return cls(
            text(environment, "ALLUVIA_QUEUE_URL", why) if queued else None,
            choice(environment, "ALLUVIA_CREATE_TABLES", ("false", "true")) == "true",
            Limits(
                number(environment, "ALLUVIA_BODY_LIMIT_BYTES", "bytes", _DEFAULT.body_bytes),
                number(environment, "ALLUVIA_INFLATED_LIMIT_BYTES", "bytes", _DEFAULT.inflated_bytes),
                number(environment, "ALLUVIA_EVENT_LIMIT_BYTES", "bytes", _DEFAULT.event_bytes),
                EVENTS_MAX,
            ),
            number(environment, "ALLUVIA_CREATE_TABLES_MAX", "tables", TABLES_MAX),
            environment.get("ALLUVIA_LOGS_TABLE") or LOGS_TABLE,
            FileLimits(
                number(environment, "ALLUVIA_UPLOAD_LIMIT_BYTES", "bytes", UPLOADS.bytes_max),
                number(environment, "ALLUVIA_UPLOAD_NAMES_MAX", "names", UPLOADS.names_max),
                number(environment, "ALLUVIA_UPLOAD_SECONDS", "seconds", UPLOAD_SECONDS),
                number(environment, "ALLUVIA_UPLOAD_MEMORY_BYTES", "bytes", UPLOAD_MEMORY_BYTES),
            ),
            Authorization.read(environment),
            caller_uploads=number(environment, CALLER_UPLOADS, "uploads", UPLOADS_OF_ONE, most=1000),
            caller_upload_bytes=number(environment, CALLER_UPLOAD_BYTES, "bytes", None),
        )

    @property
    def upload_bytes_of_one(self) -> int:
        """Return the bytes that the unfinished uploads of one caller may have together."""
        most = self.caller_upload_bytes
        return FILES_OF_ONE * self.files.bytes_max if most is None else most
