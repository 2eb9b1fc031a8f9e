"""JSON objects as the bodies of requests. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from alluvia.errors import Invalid, cut
from alluvia.query.parameters import from_json
from alluvia.serverless.http import Request

from .asking import FORM_TYPE, JSON_TYPE, UnsupportedMediaType


def json_object(request: Request, what: str, example: str, fields: Collection[str], bytes_max: int) -> dict[str, Any]:
    """Return the fields of a body. Raises `Invalid`, naming the field, and `UnsupportedMediaType`.

    `what` is what the body describes, such as a query to publish.
    """
    data = request.body()
    media_type = request.headers.get("content-type", JSON_TYPE).partition(";")[0].strip().lower()
    if media_type != JSON_TYPE and not (media_type == FORM_TYPE and data.lstrip().startswith(b"{")):  # as curl calls it
        raise UnsupportedMediaType(f"Content-Type: send {JSON_TYPE}, with {example}")
    if len(data) > bytes_max:
        raise Invalid(f"the body has more than {bytes_max} bytes: send a shorter one, such as {example}")
    try:
        body = from_json(data)
    except ValueError as error:
        raise Invalid(f"the body is not JSON ({error}): send {example}") from None
    if not isinstance(body, dict):
        raise Invalid(f"the body must be a JSON object: send {example}")
    unknown = next((field for field in body if field not in fields), None)
    if unknown is not None:
        raise Invalid(f"{cut(unknown, 100)} is not a field of {what}: send {example}")
    return body
