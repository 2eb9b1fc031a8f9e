"""Log lines: each says which request it is about, and none holds what a caller sent."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import alluvia
from alluvia.access.rights import Rights
from alluvia.errors import Invalid, Unavailable
from alluvia.events.ingest import pipeline
from alluvia.events.ingest.messages import LIMIT_BYTES
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.serverless.log_lines import name_caller, with_request_id
from functions.ingest import events
from functions.ingest import handler as ingest_module
from tests.log_lines import HANDLERS, Context, Lines, log_lines
from tests.samples import payload, post

SECRET = "hunter2-do-not-log"
HTTP = {"ingest": "ingest_api_gateway", "query": "query_api_gateway"}


@pytest.fixture
def lines(lake: alluvia.Lake) -> Iterator[Lines]:
    with log_lines() as found:
        yield found


def send(body: str, table: str = "access_log", request_id: str = "r") -> dict[str, Any]:
    return ingest_module.handler(post(body, table), Context(request_id))


@pytest.mark.parametrize(
    ("function", "event"),
    [
        ("ingest", "ingest_api_gateway"),
        ("ingest", "ingest_sqs"),
        ("query", "query_api_gateway"),
        ("merge", "merge_schedule"),
        ("vacuum", "vacuum_schedule"),
    ],
)
def test_every_line_names_its_request(lines: Lines, function: str, event: str) -> None:
    HANDLERS[function].handler(payload(event), Context("request-1"))
    HANDLERS[function].handler(payload(event), Context("request-2"))
    ids = [line["function_request_id"] for line in lines.parsed()]
    assert set(ids) == {"request-1", "request-2"}
    assert ids == sorted(ids)
    assert {line["service"] for line in lines.parsed()} == {function}


@pytest.mark.parametrize(("function", "event"), HTTP.items())
def test_the_line_of_a_request_has_the_id_that_its_caller_got(lines: Lines, function: str, event: str) -> None:
    sent = payload(event)
    HANDLERS[function].handler(sent, Context("request-1"))
    assert {line["api_request_id"] for line in lines.parsed()} == {sent["requestContext"]["requestId"]}


@pytest.mark.parametrize("function", HANDLERS)
def test_the_first_request_of_a_process_is_a_cold_start(function: str) -> None:
    """Each module is loaded anew in a process of its own, and its logger's keys are looked at as a line would be."""
    program = f"""
import functions.{function}.handler as module
class Context: aws_request_id = "r"
module.logger.setLevel("INFO")
from alluvia.serverless.log_lines import with_request_id
wrapped = with_request_id(module.logger)(lambda event, context: module.logger.info("line"))
for _ in range(3): wrapped({{}}, Context())
module.logger.info("outside")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line.get("cold_start") for line in found] == [True, False, False, None]
    assert [line.get("function_request_id") for line in found] == ["r", "r", "r", None]


def test_lines_of_requests_at_once_are_not_mixed_up(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    """`alluvia serve` answers requests in threads: both are under way when each of them logs."""
    both = threading.Barrier(2, timeout=60)

    def together(*args: Any, **options: Any) -> Any:
        both.wait()
        done = ingest_batch(*args, **options)
        both.wait()
        return done

    monkeypatch.setattr(events, "ingest_batch", together)
    tables = {"access_log": "request-1", "github_webhooks": "request-2"}
    threads = [threading.Thread(target=send, args=('{"x":1}', table, request)) for table, request in tables.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {line["table"]: line["function_request_id"] for line in lines.parsed()} == tables


def test_a_request_leaves_nothing_for_the_next(lines: Lines) -> None:
    send("{}", request_id="request-1")
    event = payload("ingest_sqs")
    HANDLERS["ingest"].handler(event, None)
    *first, second, third = lines.parsed()
    assert {line["function_request_id"] for line in first} == {"request-1"}
    for line in (second, third):
        assert "function_request_id" not in line
        assert "api_request_id" not in line


def test_a_call_that_fails_is_logged_with_its_request_in_lambda(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lambda itself prints the traceback without saying whose it is. Elsewhere the caller has the exception."""
    with pytest.raises(Invalid):
        HANDLERS["merge"].handler({"table": "x"}, Context("request-1"))
    assert lines.text == ""
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "merge")
    with pytest.raises(Invalid):
        HANDLERS["merge"].handler({"table": "x"}, Context("request-1"))
    (line,) = lines.parsed()
    assert (line["level"], line["exception_name"]) == ("ERROR", "Invalid")
    assert line["function_request_id"] == "request-1"


def fail(*args: Any, **options: Any) -> Any:
    raise Unavailable("the store went away")


@pytest.mark.parametrize("broken", [False, True])
def test_nothing_that_was_posted_is_logged(
    lake: alluvia.Lake, lines: Lines, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    lake.table("access_log").evolve(add={"seats": "long"})
    if broken:
        monkeypatch.setattr(pipeline, "ingest", fail)
    for body in (
        f'{{"event":"{SECRET}"}}',
        f'{{"seats":"{SECRET}"}}',
        f'{{"{SECRET}":',
        f'[{{"event":7,"x":"{SECRET}"}},{{"y":"{SECRET}"}}]',
        f'{{"x":"{SECRET}","x":1}}',
    ):
        send(body)
    send("{}", table=SECRET)
    assert len(lines.parsed()) >= 3
    assert SECRET not in lines.text


@pytest.mark.parametrize("broken", [False, True])
def test_nothing_of_a_message_is_logged(lines: Lines, monkeypatch: pytest.MonkeyPatch, broken: bool) -> None:
    if broken:
        monkeypatch.setattr(pipeline, "ingest", fail)
    records = payload("ingest_sqs")["Records"]
    head, first, *rest = records[0]["body"].split("\n")
    whole = json.loads(first)
    bodies = [
        "\n".join([head, json.dumps(whole | {"x": SECRET}), *rest]),
        "\n".join([head, json.dumps(whole | {"event_id": "e", "event": {"x": SECRET}}), *rest]),
        "\n".join([head, SECRET, *rest]),
        "\n".join([head, first]) + SECRET,
        SECRET,
        json.dumps({"table": SECRET}),
        "x" * LIMIT_BYTES + SECRET,
    ]
    sent = [records[0] | {"body": body, "messageId": f"m{at}"} for at, body in enumerate(bodies)]
    HANDLERS["ingest"].handler({"Records": sent}, Context("r"))
    unreadable, last = [line for line in lines.parsed() if "message_id" in line], lines.parsed()[-1]
    assert len(unreadable) == len(bodies) - 2 == (last["failed_messages"] - 2 * broken)
    assert SECRET not in lines.text


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT '{SECRET}'",
        f"SELECT count(*) FROM access_log WHERE event = '{SECRET}'",
        f"SELECT CAST('{SECRET}' AS INTEGER)",
        f"SELECT '{SECRET}' FROM nowhere",
        f"SELEC '{SECRET}'",
    ],
)
def test_no_query_and_no_result_is_logged(lines: Lines, query: str) -> None:
    HANDLERS["query"].handler({"query": query}, Context("r"))
    assert len(lines.parsed()) == 1
    assert SECRET not in lines.text


def test_these_are_all_the_handlers() -> None:
    for name in HANDLERS:
        assert hasattr(importlib.import_module(f"functions.{name}.handler").handler, "__wrapped__")
    assert set(HANDLERS) == {path.parent.name for path in Path(ingest_module.__file__).parents[1].glob("*/handler.py")}


def test_lines_name_the_caller_until_its_request_ends(lines: Lines) -> None:
    def answer(event: dict[str, str], _: object) -> None:
        name_caller(logger, Rights((), event["name"], event["key"]))
        logger.info("answered")

    logger = HANDLERS["query"].logger
    take = with_request_id(logger)(answer)
    for name, key in (("Petra", "id1"), ("", "id2"), ("", "")):
        take({"name": name, "key": key}, Context("r"))
    logger.info("outside")
    assert [line.get("caller") for line in lines.parsed()] == ["Petra", "id2", None, None]
