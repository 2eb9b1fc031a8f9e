"""JWTs of an identity provider: verified by API Gateway, or by the keys that a provider on loopback publishes."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import alluvia
from alluvia.errors import Invalid
from functions.query import handler as query

ISSUER, AUDIENCE = "https://issuer.example", "lake"
RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())


class Provider(BaseHTTPRequestHandler):
    """Publishes keys, and counts how often it is asked."""

    keys: Sequence[dict[str, Any]] = ()
    asked = 0
    raw: bytes | None = None
    """What is sent instead of an answer."""

    def do_GET(self) -> None:
        type(self).asked += 1
        if self.raw is not None:
            self.wfile.write(self.raw)
            return
        body = json.dumps({"keys": self.keys}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


NUMBERS = count()
"""An earlier test may have used the same port, and its issuer is still cached."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> alluvia.Lake:
    lake = alluvia.connect(tmp_path_factory.mktemp("lake"))
    lake.create_table("t", {"tenant": "string", "n": "long"}).append([{"tenant": tenant, "n": 1} for tenant in "ab"])
    return lake


@pytest.fixture
def provider(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Provider]]:
    public = [
        jwt.algorithms.RSAAlgorithm.to_jwk(RSA.public_key(), as_dict=True) | {"kid": "rsa", "alg": "RS256"},
        jwt.algorithms.ECAlgorithm.to_jwk(EC.public_key(), as_dict=True) | {"kid": "ec", "alg": "ES256"},
    ]
    found = type("Own", (Provider,), {"keys": public, "asked": 0})
    server = ThreadingHTTPServer(("127.0.0.1", 0), found)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, value in {
        "LAKE": lake.uri.removeprefix("file://"), "AUTH": "jwt", "JWT_ISSUER": ISSUER, "JWT_AUDIENCE": AUDIENCE,
        "JWT_WHERE": "tenant = $tenant", "JWT_JWKS_URL": f"http://127.0.0.1:{server.server_port}/{next(NUMBERS)}.json",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"ALLUVIA_{name}", value)
    yield found
    server.shutdown()
    server.server_close()


def claims(**changes: Any) -> dict[str, Any]:
    found = {"iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 600, "sub": "ada", "tenant": "a", "scope": "read:t"}
    return {name: value for name, value in {**found, **changes}.items() if value is not None}


def signed(key: Any = RSA, kid: str = "rsa", algorithm: str = "RS256", **changes: Any) -> str:
    return jwt.encode(claims(**changes), key, algorithm=algorithm, headers={"kid": kid})


def ask(token: str, authorizer: object = None) -> tuple[int, str]:
    request = {
        "rawPath": "/q",
        "headers": {"authorization": f"Bearer {token}"},
        "requestContext": {
            "http": {"method": "POST", "path": "/q"},
            "stage": "$default",
            **({} if authorizer is None else {"authorizer": authorizer}),
        },
        "body": json.dumps({"query": "SELECT tenant FROM t"}),
    }
    answer = query.handler(request, None)
    return answer["statusCode"], answer["body"]


def test_tokens_of_the_issuer_open_what_their_claims_say(provider: type[Provider]) -> None:
    for token in (signed(), signed(EC, "ec", "ES256"), signed(aud=["other", AUDIENCE])):
        assert ask(token) == (200, '{"tenant":"a"}\n')
    assert ask(signed(tenant="b")) == (200, '{"tenant":"b"}\n')
    assert ask(signed(tenant="x' OR true --")) == (200, "")
    assert ask(signed(scope="read:other"))[0] == 403
    assert ask(signed(tenant=None))[0] == 403
    assert provider.asked == 1


PEM = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def test_other_tokens_open_nothing(provider: type[Provider]) -> None:
    forged = jwt.encode(claims(), "a" * 64, algorithm="HS256", headers={"kid": "rsa"})
    head, body, _ = signed().split(".")
    none = jwt.encode(claims(), "", algorithm="none", headers={"kid": "rsa"})
    other = rsa.generate_private_key(65537, 2048)
    for token in (
        forged, none, f"{head}.{body}.", f"{head}.{body}", "", "a.b.c", "x" * 20_000, signed(other),
        signed(iss="https://evil.example"), signed(aud="other"), signed(exp=time.time() - 120), signed(exp=None),
        signed(iss=None), signed(aud=None), signed(nbf=time.time() + 120), signed(EC, "rsa", "ES256"),
        signed(RSA, "ec", "RS256"), signed(RSA, "rsa", "PS256"), signed(iss=ISSUER + "/"), signed(aud=[]),
        signed(aud=AUDIENCE + "s"), signed(exp=float("inf")), signed(nbf=float("inf")), signed(sub=7),
    ):  # fmt: skip
        assert ask(token)[0] == 401, token[:60]
    assert provider.asked <= 1


@pytest.mark.parametrize(
    ("meant_for", "status"),
    [
        ({}, 200),
        ({"use": "sig"}, 200),
        ({"key_ops": ["verify"]}, 200),
        ({"use": "sig", "key_ops": ["verify", "encrypt"]}, 200),
        ({"use": "enc"}, 401),
        ({"use": "other"}, 401),
        ({"key_ops": ["encrypt"]}, 401),
        ({"key_ops": []}, 401),
        ({"key_ops": "verify"}, 401),
        ({"use": "sig", "key_ops": ["sign"]}, 401),
        ({"use": "enc", "key_ops": ["verify"]}, 401),
    ],
)
def test_a_key_that_is_not_for_signatures_verifies_nothing(
    provider: type[Provider], meant_for: dict[str, Any], status: int
) -> None:
    provider.keys = [{**provider.keys[0], **meant_for}]
    assert ask(signed())[0] == status


def test_of_two_keys_with_one_id_the_one_for_signatures_counts(provider: type[Provider]) -> None:
    other = jwt.algorithms.RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 2048).public_key(), as_dict=True)
    provider.keys = [other | {"kid": "rsa", "use": "enc", "alg": "RSA-OAEP"}, provider.keys[0] | {"use": "sig"}]
    assert ask(signed())[0] == 200


def test_a_token_that_names_no_key_is_refused(provider: type[Provider]) -> None:
    provider.keys = [{**provider.keys[0], "kid": name} for name in ("None", "")]
    for headers in ({}, {"kid": ""}):
        assert ask(jwt.encode(claims(), RSA, algorithm="RS256", headers=headers))[0] == 401


def test_a_shared_secret_among_the_keys_verifies_nothing(provider: type[Provider]) -> None:
    secret = base64.urlsafe_b64encode(b"a" * 64).decode().rstrip("=")
    provider.keys = [{"kty": "oct", "k": secret, "kid": "rsa", "alg": name} for name in ("HS256", "RS256", None)]
    assert ask(jwt.encode(claims(), b"a" * 64, algorithm="HS256", headers={"kid": "rsa"}))[0] in (401, 503)


def test_invented_keys_cause_no_flood_of_requests(provider: type[Provider]) -> None:
    assert {ask(signed(kid=f"key-{number}"))[0] for number in range(20)} == {401}
    assert provider.asked <= 2


def test_a_provider_that_does_not_answer_is_a_503(provider: type[Provider], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_JWT_JWKS_URL", "http://127.0.0.1:9/jwks.json")
    assert ask(signed())[0] == 503


def said(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        said(b"<html>Sign in</html>"),
        said(b"\xff\xfe"),
        said(b"[]"),
        said(b"null"),
        said(b'{"keys": 7}'),
        said(b'{"keys": []}'),
        said(b'{"keys": [{"kty": "RSA", "kid": "rsa", "n": 7, "e": {}}]}'),
        said(b"[" * 200_000),
        said(b" " * 2_000_000 + b'{"keys": []}'),
        said(b'{"keys": [')[:-3],
        said(b"", "302 Found", "Location: /jwks.json\r\n"),
        said(b"", "302 Found", "Location: file:///etc/passwd\r\n"),
        said(b"", "500 Oops"),
    ],
    ids=lambda raw: f"{raw[:60]!r} of {len(raw)}",
)
def test_what_is_no_set_of_keys_is_a_503_and_nobody_asks_again_at_once(provider: type[Provider], raw: bytes) -> None:
    provider.raw = raw
    assert [ask(signed())[0] for _ in range(3)] == [503] * 3
    assert provider.asked == 1


def test_one_odd_key_takes_no_other_away(provider: type[Provider]) -> None:
    odd: list[Any] = [
        7,
        None,
        [],
        {},
        {"kty": "RSA", "kid": "rsa", "n": 7, "e": {}},
        {"kty": "RSA", "n": "*", "e": "AQAB"},
    ]
    odd += [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "rsa"}, {"kty": ["RSA"]}, {"kty": "OKP"}]
    provider.raw = said(json.dumps({"keys": [*odd, *provider.keys]}).encode())
    assert ask(signed())[0] == 200


def test_keys_that_were_read_stay_while_their_provider_talks_nonsense(provider: type[Provider]) -> None:
    assert ask(signed())[0] == 200
    provider.raw = said(b"<html>")
    assert ask(signed(kid="new"))[0] == 503
    assert ask(signed())[0] == 200


def test_keys_come_by_https_only(provider: type[Provider], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_JWT_JWKS_URL", "http://issuer.example/jwks.json")
    assert "must come by https" in ask(signed())[1]


def test_behind_api_gateway_its_word_counts_and_the_header_does_not(
    provider: type[Provider], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ALLUVIA_JWT_JWKS_URL")
    verified = {"jwt": {"claims": {"iss": ISSUER, "sub": "ada", "tenant": "b", "scope": "[read:t]"}, "scopes": None}}
    assert ask("whatever", verified) == (200, '{"tenant":"b"}\n')
    other: object = {"lambda": {"claims": {"scope": "read:t"}}}
    unverified: tuple[object, ...] = (None, {}, {"jwt": {}}, {"jwt": None}, other, "x")
    strange = ({"jwt": {"claims": {"sub": "ada", "tenant": "b", "scope": "read:t", **other}}} for other in
               ({}, {"iss": "https://evil.example"}, {"iss": [ISSUER]}))  # fmt: skip
    for nothing in (*unverified, *strange):
        assert ask(signed(), nothing)[0] == 401
    assert provider.asked == 0


@pytest.mark.parametrize("missing", ["ISSUER", "AUDIENCE"])
def test_half_a_setting_lets_nobody_in(provider: type[Provider], monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.delenv(f"ALLUVIA_JWT_{missing}")
    with pytest.raises(Invalid, match=f"ALLUVIA_JWT_{missing}"):
        ask(signed())
