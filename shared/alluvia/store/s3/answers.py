"""What S3 answered, read out of obstore's errors. Pure.

obstore has a type for some of S3's answers and a text for all of them. The text ends in a dump that repeats the whole
answer, which can hold a session token: nothing of it goes further than the status and the code, and no error of
obstore's stays attached to one of ours.
"""

from __future__ import annotations

import re

from alluvia.lazy_dataclasses import dataclass

_STATUS = re.compile(r"Server returned non-2xx status code: (\d{3})\b")
_CODE = re.compile(r"<Code>(\w+)</Code>|\(code: (\w+)\)|External AWS credential provider: (\w+)")
_NOT_DELETED = re.compile(r"DeleteObjects request failed for key (.*: .*) \(code: (\w+)\)", re.DOTALL)
_ODD_KEY = re.compile(
    r'invalid path: (?:Error parsing )?Path "(.*)"(?: contained empty|: Encountered illegal)', re.DOTALL
)
_KIND = re.compile(r"kind: (\w+),")
_WRONG_REGION = "Received redirect without LOCATION"
_NOT_PARTIAL = "Received non-partial response"
_NAMES = {400: "BadRequest", 403: "AccessDenied", 404: "NoSuchKey", 412: "PreconditionFailed", 416: "InvalidRange"}
_UNTIL_FIXED = (
    *("AccessDenied", "NoSuchBucket", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"),
    *("NoKeys", "InvalidPathError"),
)
_PASSING = (0, 408, 409, 429)


class NoKeys(Exception):
    """There are no credentials. Raised to obstore when it asks for some, and read from its error."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that failed: the status of S3's answer (0 if no complete one came), and S3's code or what failed.

    `refused` begins with the key of an object that a bulk delete did not delete, a colon and a space. `key` is one that
    obstore does not list.
    """

    status: int
    code: str
    refused: str | None = None
    key: str | None = None

    @property
    def is_missing(self) -> bool:
        """Whether the object does not exist."""
        return self.status == 404 and self.code != "NoSuchBucket"

    @property
    def is_conflict(self) -> bool:
        """Whether a concurrent delete won over a conditional write, which S3 asks to send again."""
        return self.status == 409 and self.code == "ConditionalRequestConflict"

    @property
    def is_final(self) -> bool:
        """Whether S3 would answer the same again. (A slow upload is a 400 as well, `RequestTimeout`, but passes.)"""
        passing = self.status in _PASSING or self.status >= 500 or self.code == "RequestTimeout"
        passing = passing and self.status != 501  # the store lacks what was asked for
        return self.code in _UNTIL_FIXED or not passing


NOT_PARTIAL = Failure(200, "NotPartial")
"""The answer to a ranged read is the whole object."""
CHANGED = Failure(412, "PreconditionFailed")
"""The object is not the one that was asked for."""


def read_failure(error: Exception, name: str) -> Failure:
    """Read what failed out of an error of obstore's. `name` is the object's key, which may hold any text."""
    text = str(error).replace(f"location {name} ", "", 1).replace(f"path {name}: ", "", 1)
    answer, _, dump = text.partition("\n\nDebug source:")
    if _NOT_PARTIAL in answer:
        return NOT_PARTIAL
    if _WRONG_REGION in answer:
        return Failure(301, "PermanentRedirect")
    kept = _NOT_DELETED.search(answer)
    if kept is not None:
        return Failure(0, kept[2], kept[1])
    status, code = _STATUS.search(answer), _CODE.search(answer)
    if status is None and code is None:
        kind, odd = _KIND.search(dump), _ODD_KEY.search(answer)
        return Failure(0, kind[1] if kind else type(error).__name__, key=odd[1] if odd else None)
    number = int(status[1]) if status else 0
    return Failure(number, code[code.lastindex or 0] if code else _NAMES.get(number, str(number)))
