"""How many modules of ours a warm request enters, and how often its calls go from one module to another.

A reader who follows a request opens each of these modules once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from types import FrameType
from typing import Any

import alluvia
from alluvia.server.gateway import Gateway, ServerRules
from alluvia.serverless.settings import environment
from alluvia.serverless.warm_lake import using
from benchmarks.report import Figure
from tests.s3server import S3Server

OURS = ("alluvia", "functions")
ROWS = 100


def figures(_: S3Server, folder: Path) -> list[Figure]:
    """Trace a posted event, a SELECT and two DELETEs, each after one of its kind that warms what it uses."""
    lake = alluvia.connect(folder)
    with environment({"ALLUVIA_AUTH": "open", "ALLUVIA_ALLOW_WRITES": "true"}), using(lake):
        gateway = Gateway(lake.clock, ServerRules())
        numbers = iter(range(1_000_000))

        def post() -> None:
            _send(gateway, "/v1/events/events", f'{{"event_id": "{next(numbers)}", "event": "view"}}')

        def query(sql: str) -> Callable[[], None]:
            return lambda: _send(gateway, "/q", f'{{"query": "{sql}"}}')

        def statement(sql: str) -> Callable[[], None]:
            return lambda: _send(gateway, "/sql", f'{{"query": "{sql}"}}')

        for _row in range(ROWS):
            post()
        return [
            _figure("a posted event", post, 45),
            _figure("SELECT over HTTP", query("SELECT event, count(*) AS n FROM events GROUP BY event"), 50),
            _figure("DELETE … WHERE id =", statement("DELETE FROM events WHERE event_id = '7'"), 60),
            _figure(
                "DELETE with a subquery",
                statement("DELETE FROM events WHERE event_id IN (SELECT max(event_id) FROM events)"),
                None,
            ),
        ]


def entered(action: Callable[[], object]) -> tuple[set[str], int]:
    """Return the modules of ours whose functions an action calls, and how many calls go from one to another."""
    modules: set[str] = set()
    stack: list[str] = []
    moves = 0

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal moves
        name = str(frame.f_globals.get("__name__", ""))
        if event == "call" and name.partition(".")[0] in OURS:
            modules.add(name)
            moves += bool(stack) and stack[-1] != name
            stack.append(name)
        elif event == "return" and stack and name.partition(".")[0] in OURS:
            stack.pop()

    sys.setprofile(watch)
    try:
        action()
    finally:
        sys.setprofile(None)
    return modules, moves


def _figure(name: str, action: Callable[[], object], most: int | None) -> Figure:
    action()
    modules, moves = entered(action)
    holds = None if most is None else len(modules) <= most
    return Figure(
        f"{name}: modules entered", f"{len(modules)} ({moves} moves)", bar=f"≤ {most}" if most else "", holds=holds
    )


def _send(gateway: Gateway, path: str, body: str) -> None:
    statuses: list[str] = []
    data = body.encode()
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": path, "HTTP_HOST": "localhost", "CONTENT_LENGTH": str(len(data))}
    answer = gateway(environ | {"wsgi.input": BytesIO(data)}, lambda status, _: statuses.append(status))
    text = b"".join(answer)
    if not statuses[0].startswith("2"):
        raise RuntimeError(f"{path}: {statuses[0]} {text!r}")
