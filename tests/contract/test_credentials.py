"""Where keys come from, and that boto3 is asked only where the environment holds none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from alluvia.clock import ManualClock
from alluvia.errors import Invalid
from alluvia.store import Address, PutResult
from alluvia.store.s3.bucket import S3Store
from alluvia.store.s3.credentials import DEFAULT_REGION, Keys, find_access
from alluvia.store.s3.s3_client import KEYS_MINUTES, credential
from tests.s3server import CREDENTIALS, S3Endpoint, S3Server

NOTHING = {"AWS_CONFIG_FILE": "/none", "AWS_SHARED_CREDENTIALS_FILE": "/none", "AWS_EC2_METADATA_DISABLED": "true"}


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without any AWS credentials."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name, value in NOTHING.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_the_callers_keys_come_first() -> None:
    given = Keys("mine", "s")
    environment = {**NOTHING, "AWS_ACCESS_KEY_ID": "e", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t"}
    assert find_access("eu-west-1", given, environment).keys() == given
    assert find_access(None, None, environment).keys() == Keys("e", "s", "t")
    assert find_access(None, None, {**environment, "AWS_REGION": "eu-north-1"}).region == "eu-north-1"
    assert find_access(None, None, environment).region == "us-east-1"
    assert "'s'" not in repr(Keys("e", "s", "t"))


def test_a_profile_gives_keys_and_region(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("[profile p]\nregion = eu-west-3\naws_access_key_id = k\naws_secret_access_key = s\n")
    bare.setenv("AWS_CONFIG_FILE", str(config))
    bare.setenv("AWS_PROFILE", "p")
    access = find_access(None, None)
    assert (access.region, access.keys(), access.expire) == ("eu-west-3", Keys("k", "s"), True)
    assert find_access(None, Keys("mine", "s")).region == "eu-west-3"
    bare.setenv("AWS_PROFILE", "other")
    with pytest.raises(Invalid, match="ProfileNotFound"):
        find_access(None, None)


def test_without_keys_nothing_is_sent(bare: pytest.MonkeyPatch) -> None:
    store = S3Store("bucket", "", ManualClock(), endpoint_url="http://127.0.0.1:9")
    for attempt in (lambda: store.get("k"), lambda: store.put_if_absent("k", b""), lambda: list(store.list(""))):
        with pytest.raises(Invalid, match="no AWS credentials found"):
            attempt()
    options = {"region": DEFAULT_REGION, "endpoint_url": "http://127.0.0.1:9"}
    assert store.address("k") == Address("s3://bucket", options, "k")
    with pytest.raises(Invalid, match="go together"):
        S3Store("bucket", "", ManualClock(), access_key_id="k")


class Role:
    """A container's or an instance's service for the keys of its role. `answers` counts what it was asked for."""

    def __init__(self) -> None:
        self.served = 0
        self.minutes = 60
        role = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                self._answer(b"token")

            def do_GET(self) -> None:
                if self.path.endswith("/security-credentials/"):
                    self._answer(b"role")
                    return
                role.served += 1
                expires = datetime.now(UTC) + timedelta(minutes=role.minutes)
                keys = {
                    "Code": "Success",
                    "AccessKeyId": CREDENTIALS["aws_access_key_id"],
                    "SecretAccessKey": CREDENTIALS["aws_secret_access_key"],
                    "Token": f"hidden-{role.served}",
                    "Expiration": f"{expires:%FT%TZ}",
                }
                self._answer(json.dumps(keys).encode())

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def role() -> Iterator[Role]:
    role = Role()
    thread = threading.Thread(target=role.server.serve_forever)
    thread.start()
    yield role
    role.server.shutdown()
    thread.join()
    role.server.server_close()


@pytest.mark.parametrize("place", ["container", "instance"])
def test_a_role_gives_keys(bare: pytest.MonkeyPatch, s3_server: S3Server, role: Role, place: str) -> None:
    if place == "container":
        bare.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{role.url}/keys")
    else:
        bare.setenv("AWS_EC2_METADATA_DISABLED", "false")
        bare.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", role.url)
    store = S3Store(s3_server.new_bucket(), "", ManualClock(), endpoint_url=s3_server.endpoint_url)
    assert store.put_if_absent("k", b"data") is PutResult.CREATED
    assert store.get("k") == b"data"
    assert credential(store._access)["token"] == "hidden-1"
    assert role.served == 1


def test_keys_of_a_role_are_renewed_before_they_expire(bare: pytest.MonkeyPatch, role: Role) -> None:
    bare.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{role.url}/keys")
    role.minutes = 5
    store = S3Store("bucket", "", ManualClock(), endpoint_url="http://127.0.0.1:9")
    assert [credential(store._access)["token"] for _ in range(3)] == ["hidden-2", "hidden-3", "hidden-4"]
    expires_at = credential(store._access)["expires_at"]
    assert expires_at is not None
    assert expires_at - datetime.now(UTC) < timedelta(minutes=KEYS_MINUTES)


def test_no_error_shows_a_secret(s3_server: S3Endpoint) -> None:
    """S3 repeats the session token in what it answers to an expired one."""
    options = {"access_key_id": "key", "secret_access_key": "hidden", "session_token": "hidden"}
    store = S3Store("no-such-bucket", "", ManualClock(), endpoint_url=s3_server.endpoint_url, **options)
    for attempt in (lambda: store.get("k"), lambda: store.put_if_absent("k", b""), lambda: list(store.list(""))):
        with pytest.raises(Invalid) as raised:
            attempt()
        assert raised.value.__cause__ is None
        assert raised.value.__context__ is None
        assert "hidden" not in "".join(traceback.format_exception(raised.value))
    assert "hidden" not in repr(vars(store))


LOADS = """
import sys
from alluvia.clock import SystemClock
from alluvia.store import open_store
open_store("s3://bucket/lake", SystemClock()).url("k")
print(sorted({"boto3", "botocore", "urllib3"} & set(sys.modules)))
"""


def test_keys_of_the_environment_load_no_boto3() -> None:
    environment = {**NOTHING, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t"}
    done = subprocess.run([sys.executable, "-c", LOADS], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


FORKS = """
import os, sys
from alluvia.clock import SystemClock
from alluvia.errors import Unsupported
from alluvia.store import open_store
store = open_store(sys.argv[1], SystemClock(), endpoint_url=sys.argv[2], access_key_id="k", secret_access_key="s")
store.put("k", b"data")
if os.fork() == 0:
    try:
        store.get("k")
    except Unsupported:
        os._exit(7)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
"""


def test_a_fork_is_told_that_it_cannot_use_the_store(s3_server: S3Server) -> None:
    command = [sys.executable, "-c", FORKS, f"s3://{s3_server.new_bucket()}", s3_server.endpoint_url]
    subprocess.run(command, check=True, timeout=60)
