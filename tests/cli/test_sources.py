"""`alluvia source` as its user sees it, and sources behind `alluvia serve`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import alluvia
from alluvia.cli.command_line import cli
from alluvia.errors import AnswerLost, Conflict
from alluvia.events.formats.body_format import NAMES
from alluvia.events.sources.definition import KEY, Source
from alluvia.events.sources.kinds.registry import KINDS
from alluvia.events.sources.lake_sources import change_sources, read_sources
from alluvia.server.serve import in_background
from alluvia.store.wrapper import Wrapper
from tests.webhooks import SECRETS, SETTINGS, signed, source


def run(lake: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["source", *words, "--lake", str(lake)])


def rows(lake: Path, *words: str) -> list[dict[str, Any]]:
    result = run(lake, *words, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def post(port: int, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, dict(headers), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_source_is_added_tried_rotated_listed_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "first")
    monkeypatch.setenv("TWO", "second")
    (added,) = rows(tmp_path, "add", "git-hub", "--kind", "github", "--secret", "env:ONE")
    assert added == {
        "source": "git-hub",
        "path": "/v1/webhooks/git-hub",
        "kind": "github",
        "table": "git_hub",
        "secret": "env:ONE",
        "address": "https://<your API>/v1/webhooks/git-hub",
        "at_sender": "Settings → Webhooks: the address as payload URL, and the secret",
        "server_needs": "the environment variable ONE, set when the server starts",
    }
    assert alluvia.connect(str(tmp_path)).tables() == ["git_hub"]
    assert "there is a source git-hub already" in run(tmp_path, "add", "git-hub", "--kind", "open").stderr
    (tried,) = rows(tmp_path, "test", "git-hub")
    assert (tried["signed"], tried["forged"], json.loads(tried["answer"])["stored"]) == (200, 401, 1)
    (rotated,) = rows(tmp_path, "rotate", "git-hub", "--secret", "env:TWO")
    assert (rotated["secret"], rotated["previous_secret"]) == ("env:TWO", "env:ONE")
    assert rows(tmp_path, "test", "git-hub")[0]["signed"] == 200
    assert "has its secret from there already" in run(tmp_path, "rotate", "git-hub", "--secret", "env:TWO").stderr
    assert [row["source"] for row in rows(tmp_path, "list")] == ["git-hub"]
    assert (tmp_path / KEY).read_text().splitlines()[:4] == [
        "[git-hub]",
        'kind = "github"',
        'table = "git_hub"',
        'secret = "env:TWO"',
    ]
    assert rows(tmp_path, "drop", "git-hub") == [{"dropped": "git-hub"}]
    assert rows(tmp_path, "list") == []
    for words in (("test", "git-hub"), ("rotate", "git-hub", "--secret", "env:A"), ("drop", "git-hub")):
        assert "there is no source 'git-hub'" in run(tmp_path, *words).stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("A", "--kind", "open"), "name: use up to 64 lower-case letters"),
        (("a", "--kind", "gitea", "--secret", "env:A"), "kind: choose one of standard-webhooks, github"),
        (("a", "--kind", "open", "--table", "a-b"), "table: use up to 128"),
        (("a", "--kind", "github"), "secret: say where the secret is"),
        (("a", "--kind", "github", "--secret", "hunter2"), "secret: say where the secret is, with env:NAME"),
        (("a", "--kind", "github", "--secret", "env:hunter 2"), "the secret itself does not belong here"),
        (("a", "--kind", "open", "--secret", "env:A"), "secret: kind open has none"),
        (("a", "--kind", "open", "--header", "X"), "header: kind open has no such setting"),
        (("a", "--kind", "hmac", "--secret", "env:A"), "header: name the header"),
        (("a", "--kind", "hmac", "--secret", "env:A", "--header", "a b"), "header: write a header's name"),
        (("a", "--kind", "hmac", "--secret", "env:A", "--header", "X", "--algorithm", "md5"), "algorithm: choose one"),
        (
            ("a", "--kind", "hmac", "--secret", "env:A", "--header", "X", "--signed", "x"),
            "signed: 'x' must hold",
        ),
        (
            ("a", "--kind", "hmac", "--secret", "env:A", "--header", "X", "--signed", "{ts}.{body}"),
            "signed: {ts} stands for nothing: there are {timestamp} and {body}",
        ),
        (("a", "--kind", "open", "--event-id", "a..b"), "event_id: 'a..b' is not a path"),
        (("a", "--kind", "open", "--event-id", "header:Authorization"), "event_id: the header Authorization proves"),
        (("a", "--kind", "open", "--ts", "header:X-Hub-Signature-256"), "ts: the header X-Hub-Signature-256 proves"),
        (("a", "--kind", "open", "--event", "header:x-shopify-hmac-sha256"), "event: the header x-shopify-hmac-sha256"),
        (("a", "--kind", "open", "--ts", "header:a b"), "ts: 'header:a b' does not name a header"),
        (("a", "--kind", "open", "--origin", "shop.example"), "origins: 'shop.example' is not an origin"),
        (("a", "--kind", "open", "--handshake", "hub"), "verify_token: handshake hub needs one"),
        (("a", "--kind", "open", "--format", "xml"), "format: choose one of json"),
        (("a", "--kind", "open", "--format", "csv", "--delimiter", ";;"), "delimiter: use one character, and no quote"),
        (("a", "--kind", "open", "--format", "csv", "--delimiter", '"'), "delimiter: use one character, and no quote"),
        (("a", "--kind", "twilio", "--secret", "env:A", "--url", "https://a/b?c"), "url: write an address"),
        (
            ("a", "--kind", "stripe", "--secret", "env:A", "--tolerance-seconds", "0"),
            "tolerance_seconds: write",
        ),
    ],
)
def test_a_definition_that_is_wrong_names_the_setting(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    result = run(tmp_path, "add", *words)
    assert result.exit_code == 1
    assert message in result.stderr
    assert "hunter" not in result.stderr
    assert not (tmp_path / KEY).exists()


@pytest.mark.parametrize(
    ("kind", "bad", "good", "message"),
    [
        ("standard-webhooks", "whsec_hunter!", "whsec_MfKQ9r8GKYqr", "the secret must be base64, as in whsec_…"),
        ("basic", "hunter", "user:hunter", "the secret must be user:password"),
    ],
)
@pytest.mark.parametrize("place", ["env", "file"])
def test_a_secret_that_can_prove_nothing_is_refused_if_it_can_be_read(
    place: str, kind: str, bad: str, good: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, lake = tmp_path / "secret", tmp_path / "lake"
    reference = "env:ONE" if place == "env" else f"file:{file}"
    add = ("add", "a", "--kind", kind, "--secret", reference)

    def let(secret: str) -> None:
        monkeypatch.setenv("ONE", secret)
        file.write_text(f"{secret}\n")

    let(bad)
    refused = run(lake, *add)
    assert (refused.exit_code, message in refused.stderr, "hunter" in refused.stderr) == (1, True, False)
    assert not (lake / KEY).exists()
    let(good)
    rows(lake, *add)
    rows(lake, "add", "b", "--kind", kind, "--secret", "env:LATER")
    let(bad)
    assert message in run(lake, "rotate", "b", "--secret", reference).stderr
    monkeypatch.delenv("ONE")
    file.unlink()
    rows(lake, "rotate", "b", "--secret", reference)


def test_a_secret_that_cannot_be_read_here_is_told_without_a_line_of_a_log(tmp_path: Path) -> None:
    """In a process of its own, whose standard output the function's log would go to."""
    rows(tmp_path, "add", "s", "--kind", "github", "--secret", "ssm:/a")
    here = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    away = {"AWS_CONFIG_FILE": str(tmp_path / "none"), "AWS_EC2_METADATA_DISABLED": "true"}
    command = [sys.executable, "-m", "alluvia.cli", "source", "test", "s", "--lake", str(tmp_path), "--json"]
    done = subprocess.run(command, env=here | away, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "alluvia: the secret ssm:/a cannot be read: set AWS_REGION\n"


def test_a_table_that_takes_no_events_is_refused(tmp_path: Path) -> None:
    lake = alluvia.connect(str(tmp_path))
    lake.create_table("plain", pa.schema([("price", pa.int64())]))
    lake.create_table("number", pa.schema([("event_id", pa.int64())]))
    lake.create_table("enough", pa.schema([("event_id", pa.string())]))
    for table in ("plain", "number"):
        result = run(tmp_path, "add", "s", "--kind", "open", "--table", table)
        assert result.exit_code == 1
        assert f"table: {table} is not a table of events, because it has no column event_id" in result.stderr
    assert not (tmp_path / KEY).exists()
    rows(tmp_path, "add", "s", "--kind", "open", "--table", "enough")


def test_a_file_written_by_hand_may_have_one_fault(tmp_path: Path) -> None:
    rows(tmp_path, "add", "good", "--kind", "open")
    path = tmp_path / KEY
    path.write_text(path.read_text() + '# a comment\n[bad]\nkind = "github"\ntable = "t"\n')
    assert [row.get("fault", "")[:12] for row in rows(tmp_path, "list")] == ["", "source 'bad'"]
    assert (
        "a source that must be corrected or removed first: source 'bad'"
        in run(tmp_path, "add", "next", "--kind", "open").stderr
    )
    assert rows(tmp_path, "drop", "bad") == [{"dropped": "bad"}]
    assert [row["source"] for row in rows(tmp_path, "list")] == ["good"]
    until = '[s]\nkind = "open"\ntable = "t"\nprevious_until = '
    for text, fault in (
        (f"{until}9999-12-31T23:59:59-14:00\n", "source 's': previous_until: write a moment from 1970 on"),
        (f"{until}0001-01-01T00:00:00+14:00\n", "source 's': previous_until: write a moment from 1970 on"),
    ):
        path.write_text(text)
        assert [row["fault"][: len(fault)] for row in rows(tmp_path, "list")] == [fault]
    for text in ("what = [", f"{until}{'9' * 6000}\n"):
        path.write_text(text)
        assert "_alluvia/sources.toml is not valid TOML" in run(tmp_path, "list").stderr
    path.write_bytes(b'\xef\xbb\xbf[s]\nkind = "open"\ntable = "t"\n')
    assert [row["source"] for row in rows(tmp_path, "list")] == ["s"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_definition_comes_back_as_it_was_written(kind: str, tmp_path: Path) -> None:
    more = {"event_id": 'a."b"\\.\u00fc', "origins": ["https://a.example", "*"], "handshake": "challenge"}
    store = alluvia.connect(str(tmp_path)).store
    made = source(kind, **more)
    change_sources(store, lambda sources: sources.update(s=made))
    assert read_sources(store).find("s") == made


def test_changes_at_the_same_time_all_count(tmp_path: Path) -> None:
    """A writer that lost the race, or whose answer was lost, looks again."""
    store = alluvia.connect(str(tmp_path)).store
    left = [3]

    class Meddling(Wrapper):
        def put_if_same(self, key: str, data: bytes, tag: str) -> bool:
            if left[0]:
                left[0] -= 1
                other = f"other{left[0]}"
                change_sources(store, lambda sources: sources.update({other: Source(other, "open", "t")}))
            done = super().put_if_same(key, data, tag)
            if done:
                raise AnswerLost("no answer")
            return done

    change_sources(store, lambda sources: sources.update(a=Source("a", "open", "t")))
    change_sources(Meddling(store), lambda sources: sources.update(b=Source("b", "open", "t")))
    assert sorted(read_sources(store).by_name) == ["a", "b", "other0", "other1", "other2"]
    left[0] = 100
    with pytest.raises(Conflict, match="the sources were changed by others meanwhile"):
        change_sources(Meddling(store), lambda sources: sources.update(c=Source("c", "open", "t")))


def test_every_kind_over_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = alluvia.connect(str(tmp_path))
    for kind in KINDS:
        variable = f"SECRET_{kind.replace('-', '_')}"
        monkeypatch.setenv(variable, SECRETS[kind])
        words = [f"--{name.replace('_', '-')}={value}" for name, value in SETTINGS.get(kind, {}).items()]
        secret = () if kind == "open" else ("--secret", f"env:{variable}")
        rows(tmp_path, "add", kind, "--kind", kind, "--table", "t", *secret, *words)
    with in_background(lake) as port:
        for kind in KINDS:
            (tried,) = rows(tmp_path, "test", kind, "--url", f"http://127.0.0.1:{port}")
            assert (tried["signed"], tried["forged"]) == (200, None if kind == "open" else 401), tried
            delivery = signed(source(kind), now_us=lake.clock.now_us())
            path = f"/v1/webhooks/{kind}"
            assert [post(port, path, delivery.body, delivery.headers)[0] for _ in range(2)] == [200, 200]
            assert post(port, path, delivery.body, {**delivery.headers, "Origin": "https://evil.example"})[0] == 401
        assert post(port, "/v1/events/t", b"{}", {"Origin": "https://evil.example"})[0] == 403
    assert lake.table("t").count() == 2 * len(KINDS)


@pytest.mark.parametrize("name", NAMES)
def test_the_sample_is_in_the_format_of_the_source(name: str, tmp_path: Path) -> None:
    more = ("--delimiter", ";") if name == "csv" else ()
    rows(tmp_path, "add", "s", "--kind", "open", "--format", name, *more)
    (tried,) = rows(tmp_path, "test", "s")
    assert tried["signed"] == 200
    [row] = alluvia.connect(str(tmp_path)).table("s").to_arrow().to_pylist()
    assert (row["event"], row["source"]) == ("alluvia.test", "/alluvia" if name == "cloudevents" else "s")


def test_a_sample_that_is_not_stored_is_a_fault(tmp_path: Path) -> None:
    """Over HTTP as in the process, and in the words of any format."""
    lake = alluvia.connect(str(tmp_path))
    lake.create_events("t", pa.schema([("price", pa.int64())]))
    rows(tmp_path, "add", "events", "--kind", "open", "--table", "t", "--event-id", "note.id")
    for name in ("csv", "firehose", "otlp"):
        rows(tmp_path, "add", name, "--kind", "open", "--table", "t", "--format", name)
    bodies = {
        "events": b'{"price":"x"}',
        "csv": b"price\nx\n",
        "firehose": b'{"records":[{"data":"!!!"}]}',
        "otlp": b'{"resourceLogs":[]}',
    }
    reasons = {
        "events": "events were rejected: 1 (price: expected a number (long), got a string)",
        "csv": "events were rejected: 1 (price: expected",
        "firehose": "events were rejected: 1; see `alluvia rejects show t`",
        "otlp": "the request brought no event",
    }
    with in_background(lake) as port:
        for name, body in bodies.items():
            file = tmp_path / name
            file.write_bytes(body)
            for url in ((), ("--url", f"http://127.0.0.1:{port}")):
                result = run(tmp_path, "test", name, "--body", str(file), *url)
                assert (result.exit_code, reasons[name] in result.stderr) == (1, True), result.output
    assert lake.table("t").count() == 0
    file.write_bytes(b"no JSON")
    assert "the signed request got the status 400" in run(tmp_path, "test", "otlp", "--body", str(file)).stderr


def test_a_form_with_json_in_it_and_one_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s3cret-\u00dc")
    lake = alluvia.connect(str(tmp_path))
    for kind in ("github", "slack"):
        rows(tmp_path, "add", kind, "--kind", kind, "--secret", "env:SECRET")
    form = {"content-type": "application/x-www-form-urlencoded"}
    bodies = {
        "github": b"payload=%7B%22action%22%3A%22opened%22%2C%22number%22%3A7%2C%22pull_request%22%3A%7B%7D%7D",
        "slack": b"command=%2Fweather&text=94070&trigger_id=13345224609.738474920.8088930838d88f008e0",
    }
    with in_background(lake) as port:
        for kind, body in bodies.items():
            delivery = signed(source(kind), body, lake.clock.now_us(), **form)
            headers = {**delivery.headers, **form}
            status, text = post(port, f"/v1/webhooks/{kind}", body, headers)
            assert (status, text == "") == (200, kind == "slack")
    [pull] = lake.table("github").to_arrow().to_pylist()
    assert (pull["event"], json.loads(pull["properties"])) == (
        "pull_request",
        {"action": "opened", "number": 7, "pull_request": {}},
    )
    [command] = lake.table("slack").to_arrow().to_pylist()
    assert (command["event"], command["event_id"]) == ("/weather", "13345224609.738474920.8088930838d88f008e0")


def test_a_time_beside_a_signature_is_taken_and_what_is_defined_stays(tmp_path: Path) -> None:
    rows(tmp_path, "add", "a", "--kind", "open", "--ts", "header:X-Signature-Timestamp")
    kept = tmp_path / KEY
    kept.write_text(kept.read_text().replace("X-Signature-Timestamp", "X-Signature"))
    rows(tmp_path, "add", "b", "--kind", "open")
    assert [(each["source"], each.get("ts")) for each in rows(tmp_path, "list")] == [
        ("a", "header:X-Signature"),
        ("b", None),
    ]


def test_a_header_that_is_not_signed_is_named_when_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "s")
    topic = ("--event", "header:X-Shopify-Topic")
    assert (
        "X-Shopify-Topic is not signed"
        in run(tmp_path, "add", "a", "--kind", "shopify", "--secret", "env:SECRET", *topic).stderr
    )
    signed_time = ("--header", "X-S", "--timestamp-header", "X-T", "--ts", "header:X-T")
    for name, words in {
        "b": ("--kind", "bearer", "--event", "header:X-Name"),
        "c": ("--kind", "hmac", *signed_time),
    }.items():
        assert run(tmp_path, "add", name, *words, "--secret", "env:SECRET").stderr == ""
