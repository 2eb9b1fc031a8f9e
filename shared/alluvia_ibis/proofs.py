"""How a request proves who sends it: by a token, or by a signature with AWS credentials."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from alluvia.errors import Invalid
from alluvia.extras import needing
from alluvia.store.s3.credentials import find_access

Proof = Callable[[str, str, bytes | None], Mapping[str, str]]
"""Returns headers for a request, given its method, URL and body."""
HEADERS = ("Authorization", "X-Amz-Date", "X-Amz-Security-Token")
"""What proofs are in; for one host alone."""
_HOSTS = {
    "execute-api": re.compile(r".+\.execute-api\.([a-z0-9-]+)\.amazonaws\.com"),
    "lambda": re.compile(r".+\.lambda-url\.([a-z0-9-]+)\.on\.aws"),
}


def nothing(method: str, url: str, body: bytes | None) -> Mapping[str, str]:  # noqa: ARG001
    """Prove nothing: the server asks nobody."""
    return {}


def bearer(token: str) -> Proof:
    """Prove it by a token."""
    return lambda method, url, body: {"Authorization": f"Bearer {token}"}  # noqa: ARG005


def signature(server: str, region: str | None) -> Proof:
    """Prove it by signing each request (Signature Version 4), with the credentials that boto3 would find.

    API Gateway's own hosts and those of function URLs name their region. Raises `Invalid` where there are no
    credentials, and `NotInstalled`.
    """
    with needing("aws", "a request that is signed with AWS credentials"):
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials
    service, place = "execute-api", None
    for name, pattern in _HOSTS.items():
        if match := pattern.fullmatch(urlsplit(server).hostname or ""):
            service, place = name, match[1]
    access = find_access(region or place, None)

    def sign(method: str, url: str, body: bytes | None) -> Mapping[str, str]:
        keys = access.keys()
        if keys is None:
            raise Invalid("auth: no AWS credentials were found: set a profile, or AWS_ACCESS_KEY_ID and its secret")
        request = AWSRequest(method, url, data=body or b"")
        credentials = Credentials(keys.access_key_id, keys.secret_access_key, keys.session_token)
        SigV4Auth(credentials, service, access.region).add_auth(request)
        return {name: request.headers[name] for name in HEADERS if name in request.headers}

    return sign
