"""Judges requests to S3 by the policies of whoever signs them and of the bucket, as S3 does. Pure.

A test gives each role an access key of its own; the server of `tests/s3server.py` asks here about each request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, unquote
from xml.etree import ElementTree as ET

from alluvia.store.s3.s3_conditions import PROOF_KEY
from tests.infra.policies import EVERYTHING, Statement, allowed

_SIGNED = re.compile(r"Credential=([^/,]+)/\d{8}/[^/]+/s3/aws4_request")
_PRESIGNED = re.compile(r"([^/]+)/\d{8}/[^/]+/s3/aws4_request")


class Policies:
    """Who may do what in one bucket: its ARN and statements and, by access key, the ARN and statements of roles.

    Any other access key is that of a person who may do everything that the bucket does not deny.
    """

    def __init__(self, arn: str, bucket: Sequence[Statement], roles: Mapping[str, tuple[str, Sequence[Statement]]]):
        self._arn = arn
        self._bucket = [*bucket]
        self._roles = roles

    def denials(self, name: str, environ: Mapping[str, Any], body: bytes) -> list[str]:
        """Return what a request of the bucket `name` may not do, as text; nothing if it may."""
        signer = _signer(environ)
        principal, own = self._roles.get(signer, ("arn:aws:iam::123456789012:user/ada", [EVERYTHING]))
        found = []
        for action, key, given in asked(name, environ, body):
            if PROOF_KEY in key:  # which AWS, whose policies these are, is not asked for
                continue
            request = {"principal": principal, "secure": "true", "tls": "1.3", **given}
            resource = f"{self._arn}/{key}" if key else self._arn
            if not allowed([*own, *self._bucket], action, resource, **request):
                found.append(f"{signer} may not {action} {key or given}")
        return found


def _signer(environ: Mapping[str, Any]) -> str:
    signed = _SIGNED.search(environ.get("HTTP_AUTHORIZATION", ""))
    if signed is None:
        (named,) = parse_qs(environ.get("QUERY_STRING", "")).get("X-Amz-Credential", [""])
        signed = _PRESIGNED.fullmatch(named)
    assert signed is not None, "a request without a signature"
    return signed[1]


def asked(bucket: str, environ: Mapping[str, Any], body: bytes) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield what a request does: actions, the keys of objects ("" for the bucket), and the conditions' keys."""
    method, query = environ["REQUEST_METHOD"], parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    key = _path(environ).removeprefix(f"/{bucket}").removeprefix("/")
    if method in ("GET", "HEAD") and key:
        yield "s3:GetObject", key, {}
    elif method == "GET" and "list-type" in query:
        yield "s3:ListBucket", "", {"prefix": query.get("prefix", [""])[0]}
    elif method == "POST" and "delete" in query:
        for each in ET.fromstring(body).iter():
            if each.tag.rpartition("}")[2] == "Key":
                yield "s3:DeleteObject", each.text or "", {}
    elif method == "DELETE" and key:
        yield ("s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject"), key, {}
    elif key and (method == "PUT" or (method == "POST" and ("uploads" in query or "uploadId" in query))):
        part = "uploads" in query or (method == "PUT" and "uploadId" in query)
        given = {"creates": "false" if part else "true"}
        for name, header in (("none_match", "HTTP_IF_NONE_MATCH"), ("match", "HTTP_IF_MATCH")):
            given |= {name: environ[header]} if header in environ else {}
        yield "s3:PutObject", key, given
        if source := environ.get("HTTP_X_AMZ_COPY_SOURCE"):
            yield "s3:GetObject", unquote(source).removeprefix("/").removeprefix(f"{bucket}/"), {}
    else:
        raise AssertionError(f"no rule for {method} of {key or bucket} with {sorted(query)}")


def _path(environ: Mapping[str, Any]) -> str:
    return str(environ["PATH_INFO"]).encode("latin-1").decode()
