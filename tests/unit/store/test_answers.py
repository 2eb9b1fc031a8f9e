"""What failed, read out of obstore's errors; none of what S3 wrote besides."""

from __future__ import annotations

import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, InvalidPathError, UnauthenticatedError

from alluvia.store.s3.s3_client import NOT_PARTIAL, Failure, read_failure

SENT = "Error performing PUT http://host/b/k in 9ms - "
DUMP = '\n\nDebug source:\nGeneric {\n    kind: Connect,\n    status: 412, body: Some("<Code>Other</Code>")}'


def answered(status: str, code: str = "") -> str:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>" if code else ""
    return f"{SENT}Server returned non-2xx status code: {status}: {body}{DUMP}"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (AlreadyExistsError(answered("412 Precondition Failed", "PreconditionFailed")), 412, "PreconditionFailed"),
        (AlreadyExistsError(answered("409 Conflict", "ConditionalRequestConflict")), 409, "ConditionalRequestConflict"),
        (FileNotFoundError(answered("404 Not Found", "NoSuchBucket")), 404, "NoSuchBucket"),
        (FileNotFoundError(answered("404 Not Found")), 404, "NoSuchKey"),
        (GenericError(answered("503 Service Unavailable")), 503, "503"),
        (GenericError(f"{SENT}HTTP error: error sending request{DUMP}"), 0, "Connect"),
        (GenericError("DeleteObjects request failed for key k: Denied (code: AccessDenied)"), 0, "AccessDenied"),
        (GenericError("Received redirect without LOCATION, this normally …"), 301, "PermanentRedirect"),
        (UnauthenticatedError("… for path External AWS credential provider: NoKeys: "), 0, "NoKeys"),
        (InvalidPathError('Path "a//b" contained empty path segment'), 0, "InvalidPathError"),
        (GenericError("Received non-partial response when range requested"), *(200, "NotPartial")),
    ],
)
def test_status_and_code_are_read(error: Exception, status: int, code: str) -> None:
    failure = read_failure(error, "k")
    assert (failure.status, failure.code) == (status, code)


@pytest.mark.parametrize(
    "text",
    [
        'Path "{}" contained empty path segment',
        'Error parsing Path "{}": Encountered illegal character sequence "." whilst parsing path segment "."',
    ],
)
@pytest.mark.parametrize("key", ["a//b", 'a"/./b', "a\nb"])
def test_the_object_that_cannot_be_listed_is_named(text: str, key: str) -> None:
    error = InvalidPathError(
        f"Encountered object with invalid path: {text.format(key)}\n\nDebug source:\nInvalidPath {{"
    )
    assert read_failure(error, "a") == Failure(0, "InvalidPathError", key=key)


def test_the_object_that_was_not_deleted_is_named() -> None:
    error = GenericError("DeleteObjects request failed for key a: b (code: X): We encountered (code: InternalError)")
    assert read_failure(error, "k") == Failure(0, "InternalError", "a: b (code: X): We encountered")


@pytest.mark.parametrize("key", ["status code: 412", "Server returned non-2xx status code: 412", "<Code>X</Code>"])
def test_a_key_is_not_taken_for_an_answer(key: str) -> None:
    answer = answered("409 Conflict", "ConditionalRequestConflict")
    error = AlreadyExistsError(f"Object at location {key} already exists: {answer}")
    assert read_failure(error, key) == Failure(409, "ConditionalRequestConflict")


@pytest.mark.parametrize(
    ("failure", "final"),
    [
        (Failure(0, "Connect"), False),
        (Failure(0, "NoKeys"), True),
        (Failure(0, "AccessDenied"), True),
        (Failure(400, "RequestTimeout"), False),
        (Failure(400, "InvalidArgument"), True),
        (Failure(403, "AccessDenied"), True),
        (Failure(404, "NoSuchKey"), True),
        (Failure(409, "OperationAborted"), False),
        (Failure(429, "429"), False),
        (Failure(301, "PermanentRedirect"), True),
        (Failure(500, "InternalError"), False),
        (Failure(503, "SlowDown"), False),
        (NOT_PARTIAL, True),
    ],
)
def test_what_passes_is_tried_again(failure: Failure, final: bool) -> None:
    assert failure.is_final is final
