"""Whether an answer of S3's is whole. Pure.

Python's HTTP client takes the end of a connection for the end of an answer's head, and botocore no body for an empty
one: half an answer to a GET would be an empty object, and half of one to a LIST an empty listing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BODILESS = (204, 304)
_PASSING_ERROR = b"<Error><Code>RequestTimeout</Code><Message>the answer broke off</Message></Error>"


def refuse_half(operation_model: Any, response_dict: dict[str, Any], **_: Any) -> None:
    """Have botocore take half an answer for an error that passes: a handler of its event `before-parse`."""
    method, status = operation_model.http["method"], response_dict["status_code"]
    if not is_whole(method, status, response_dict["headers"], response_dict["body"]):
        response_dict["status_code"], response_dict["body"] = 500, _PASSING_ERROR


def is_whole(method: str, status: int, headers: Mapping[str, str], body: object) -> bool:
    """Whether an answer's head says how long its body is, and the body is that long if it has been read (`bytes`).

    The HTTP client itself looks for the end of a body in chunks, and whoever reads a body piece by piece for the end
    of that. Names of headers are in lower case, or in any case where the mapping does not mind.
    """
    length = headers.get("content-length", "")
    if method == "HEAD":
        return status != 200 or (length.isdecimal() and headers.get("last-modified", "").endswith("GMT"))
    if status in _BODILESS or headers.get("transfer-encoding", "").lower() == "chunked":
        return True
    return length.isdecimal() and (not isinstance(body, bytes) or len(body) == int(length))
