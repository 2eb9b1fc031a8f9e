"""The commands of the guide to tokens run, in its order, against a server."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import alluvia
from tests.serving import serving

GUIDE = (Path(__file__).parents[2] / "docs" / "TOKENS.md").read_text()
CREATE, CALLS, PUBLISH, LINK, ISSUER = re.findall(r"^```sh\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
ALLUVIA = f"{shlex.quote(sys.executable)} -m alluvia.cli "


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path / "lake"))
    lake = alluvia.connect(tmp_path / "lake")
    rows = [{"tenant": tenant, "email": f"{tenant}@x", "phone": "1", "n": 1} for tenant in "ab"]
    columns = {"tenant": "string", "email": "string", "phone": "string", "n": "long"}
    lake.create_table("daily_hits", columns).append(rows)
    return tmp_path / "lake"


def shell(text: str) -> str:
    done = subprocess.run(["bash", "-ec", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def call(port: int, token: str) -> list[str]:
    calls = CALLS.replace("curl ", "curl --silent --show-error ").replace("localhost:8080", f"127.0.0.1:{port}")
    return shell(f"TOKEN={token}\n" + calls.replace("/clicks\n", "/clicks; echo\n")).splitlines()


def test_a_token_of_the_lake(place: Path) -> None:
    token = shell(CREATE.replace("alluvia ", ALLUVIA, 1)).strip()
    with serving(place, "--auth", "tokens") as (_, port):
        posted, *rows = call(port, token)
    assert json.loads(posted)["accepted"] == 1
    assert list(map(json.loads, rows)) == [{"tenant": "a", "phone": "1", "n": 1}]


def test_a_token_of_a_published_query(place: Path) -> None:
    publish, create, ask = PUBLISH.replace("alluvia ", ALLUVIA).splitlines()
    shell(publish)
    token = shell(create).strip()
    with serving(place, "--auth", "tokens") as (_, port):
        ask = ask.replace("curl ", "curl --silent --show-error ").replace("localhost:8080", f"127.0.0.1:{port}")
        answers = [shell(f"TOKEN={token}\n{ask.replace('tenant=a', f'tenant={tenant}')}") for tenant in "ab"]
    assert list(map(json.loads, answers)) == [[{"n": 1}], [{"n": None}]]


def test_a_link_to_a_published_query(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish, _, _ = PUBLISH.replace("alluvia ", ALLUVIA).splitlines()
    shell(publish)
    create, ask = LINK.replace("alluvia ", ALLUVIA).splitlines()
    with serving(place, "--auth", "tokens") as (_, port):
        monkeypatch.setenv("ALLUVIA_URL", f"http://127.0.0.1:{port}")
        link = shell(create).strip()
        assert shell(f"LINK='{link}'\n{ask.replace('curl ', 'curl --silent --show-error ')}") == "n\n1\n"


def test_a_token_of_an_identity_provider(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = Ed25519PrivateKey.generate()
    jwk: dict[str, Any] = jwt.algorithms.OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
    keys = json.dumps({"keys": [jwk | {"kid": "one", "alg": "EdDSA"}]}).encode()

    class Provider(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(keys)

    provider = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    *settings, serve = ISSUER.strip().splitlines()
    given = dict(word.split("=", 1) for line in settings for word in shlex.split(line)[1:])
    given["ALLUVIA_JWT_JWKS_URL"] = f"http://127.0.0.1:{provider.server_port}/jwks.json"
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    claims = {"iss": given["ALLUVIA_JWT_ISSUER"], "aud": given["ALLUVIA_JWT_AUDIENCE"], "exp": 4_000_000_000}
    scope = "openid lake/append:clicks lake/read:daily_*"
    token = jwt.encode(claims | {"tenant": "b", "scope": scope}, key, algorithm="EdDSA", headers={"kid": "one"})
    try:
        with serving(place, *shlex.split(serve)[2:]) as (_, port):
            posted, *rows = call(port, token)
            refused = call(port, "other.token.text")
    finally:
        provider.shutdown()
        provider.server_close()
    assert json.loads(posted)["accepted"] == 1
    assert list(map(json.loads, rows)) == [{"tenant": "b", "n": 1}]
    assert "not valid" in json.loads(refused[0])["error"]
