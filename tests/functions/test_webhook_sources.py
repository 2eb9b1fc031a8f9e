"""Sources of webhooks that change, are not set up, or have their secrets elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest

import alluvia
from alluvia.clock import ManualClock
from alluvia.errors import Invalid
from alluvia.events.sources.definition import KEY
from alluvia.events.sources.lake_sources import change_sources
from alluvia.serverless import secrets, warm_lake
from alluvia.store.counting import CountingStore
from tests.functions.webhooks import REFUSED, define, in_aws, post
from tests.functions.webhooks import clock as clock  # noqa: PLC0414 - a fixture
from tests.functions.webhooks import lake as lake  # noqa: PLC0414 - a fixture
from tests.webhooks import NOW_US, SECRETS, send, signed


def test_a_rotation_has_two_secrets_valid_at_once(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLD", "old")
    until = datetime.fromtimestamp(NOW_US // 1_000_000, UTC) + timedelta(hours=1)
    of = define(lake, "github", monkeypatch, previous_secret="env:OLD", previous_until=until)
    old, new = signed(of, secret="old"), signed(of)
    assert [send(each.body, each.headers).status for each in (old, new)] == [200, 200]
    monkeypatch.delenv("OLD")
    clock.advance(600)
    assert send(new.body, new.headers).status == 200  # though the other cannot be read any more
    assert send(old.body, old.headers).status == 401
    clock.advance(3600)
    assert send(old.body, old.headers).status == 401


def test_a_secret_that_was_replaced_counts_at_once_and_the_old_one_soon_no_more(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = define(lake, "github", monkeypatch)
    old = signed(of)
    assert send(old.body, old.headers).status == 200
    clock.advance(31)
    monkeypatch.setenv("SECRET", "new")
    new = signed(of, secret="new")
    assert send(old.body, old.headers).status == 200
    assert send(new.body, new.headers).status == 200
    assert send(old.body, old.headers).status == 401


def test_a_source_counts_within_two_seconds_and_one_that_was_removed_for_half_a_minute(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with warm_lake.using(alluvia.connect("memory://sources-that-change", clock=clock)) as lake:
        assert send(b"{}").status == 401
        of = define(lake, "github", monkeypatch)
        for milliseconds, status in ((0, 401), (1_999, 401), (1, 200)):
            clock.advance(milliseconds / 1000)
            assert post(of, clock).status == status
        change_sources(lake.store, lambda sources: sources.clear())
        clock.advance(29)
        assert post(of, clock).status == 200
        clock.advance(1)
        assert post(of, clock).status == 401


def test_a_change_in_a_directory_counts_at_once(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert send(b"{}").status == 401
    of = define(lake, "github", monkeypatch)
    assert post(of, clock).status == 200
    change_sources(lake.store, lambda sources: sources.clear())
    assert post(of, clock).status == 401


def test_what_is_known_costs_no_request_and_what_is_unknown_few(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = CountingStore(alluvia.connect(str(tmp_path)).store)
    with warm_lake.using(alluvia.Lake(counting, clock)) as lake:
        of = define(lake, "github", monkeypatch)
        assert post(of, clock).status == 200
        counting.reset()
        for seconds, looked in ((0, 0), (2, 1), (30, 1)):
            clock.advance(seconds)
            before = counting.keys.count(("get", KEY))
            for _ in range(5):
                assert post(of, clock).status == 200
                assert send(b"{}", {"x-hub-signature-256": "sha256=00"}).status == 401
                assert send(b"{}", to="unknown").status == 401
            assert counting.keys.count(("get", KEY)) - before == looked


@pytest.mark.parametrize(
    ("text", "log"),
    [
        (b"not TOML", "is not valid TOML"),
        (b'[s]\nkind = "github"\ntable = "t"\n', "source 's': secret: say where"),
        (b'[s]\nkind = "github"\ntable = "t"\nsecret = "env:NOWHERE"\n', "the secret env:NOWHERE is not set"),
        (b'[s]\nkind = "standard-webhooks"\ntable = "t"\nsecret = "env:SECRET"\n', "the secret must be base64"),
    ],
)
def test_a_source_that_is_not_set_up_is_a_fault_of_ours_that_nobody_else_learns_of(
    text: bytes,
    log: str,
    lake: alluvia.Lake,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("SECRET", "hunter-ü")
    lake.store.put(KEY, text)
    headers = {"x-hub-signature-256": "a", "webhook-id": "a", "webhook-timestamp": "1", "webhook-signature": "v1,a"}
    answer = send(b"{}", headers)
    unknown = send(b"{}", headers, to="unknown" if text != b"not TOML" else "s")
    assert (answer.status, answer.json, answer.headers) == (401, REFUSED, unknown.headers)
    line = caplog.records[0]
    assert (line.getMessage(), line.levelname) == ("a source is misconfigured", "ERROR")
    assert (log in vars(line)["reason"], vars(line)["status"], vars(line)["answered"]) == (True, 500, 401)
    assert "hunter" not in json.dumps(vars(line), default=str)


def test_what_is_broken_is_looked_at_as_seldom(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = secrets.read_secret

    def ask(reference: str) -> str:
        asked.append(reference)
        return real(reference)

    monkeypatch.setattr(secrets, "read_secret", ask)
    counting = CountingStore(alluvia.connect(str(tmp_path)).store)
    with warm_lake.using(alluvia.Lake(counting, clock)) as lake:
        counting.put(KEY, b"not TOML")
        assert [send(b"{}").status for _ in range(5)] == [401] * 5
        assert counting.keys.count(("get", KEY)) == 1
        counting.delete([KEY])
        clock.advance(30)
        of = define(lake, "github", monkeypatch, secret="env:NOWHERE")
        assert [post(of, clock).status for _ in range(5)] == [401] * 5
        assert asked == ["env:NOWHERE"]
        monkeypatch.setenv("NOWHERE", SECRETS["github"])
        clock.advance(30)
        assert post(of, clock).status == 200


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with in_aws(monkeypatch):
        yield


def test_secrets_of_aws_and_of_files(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, aws: None
) -> None:
    boto3.client("secretsmanager").create_secret(Name="alluvia/hook", SecretString="of the manager")
    boto3.client("secretsmanager").create_secret(Name="alluvia/pairs", SecretString='{"github":"of a key","n":5}')
    boto3.client("ssm").put_parameter(Name="/alluvia/hook", Value="of the store", Type="SecureString")
    (tmp_path / "secret").write_text("of a file\n")
    places = {
        "secretsmanager:alluvia/hook": "of the manager",
        "secretsmanager:alluvia/pairs#github": "of a key",
        "ssm:/alluvia/hook": "of the store",
        f"file:{tmp_path}/secret": "of a file",
    }
    for reference, secret in places.items():
        of = define(lake, "github", monkeypatch, secret=reference)
        clock.advance(30)
        delivery = signed(of, secret=secret)
        assert send(delivery.body, delivery.headers).status == 200, reference
        assert send(delivery.body, signed(of, secret="other").headers).status == 401
    for missing in (
        "secretsmanager:nothing",
        "secretsmanager:alluvia/hook#x",
        "secretsmanager:alluvia/pairs#n",
        "ssm:/nothing",
        "file:/nothing",
    ):
        of = define(lake, "github", monkeypatch, secret=missing)
        clock.advance(30)
        assert post(of, clock).status == 401


@pytest.mark.parametrize("name", ["alluvia/pairs#n", "alluvia/pairs#other", "alluvia/plain#github"])
def test_a_key_that_a_secret_lacks_is_named_and_the_secret_is_not(name: str, aws: None) -> None:
    boto3.client("secretsmanager").create_secret(Name="alluvia/pairs", SecretString='{"github":"hidden","n":5}')
    boto3.client("secretsmanager").create_secret(Name="alluvia/plain", SecretString="hidden")
    with pytest.raises(Invalid) as raised:
        secrets.read_secret(f"secretsmanager:{name}")
    key = name.rpartition("#")[2]
    assert str(raised.value) == (
        f"the secret secretsmanager:{name} cannot be read: it must be a JSON object with a text under {key!r}"
    )
