"""Requests to a server as bytes."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from pathlib import Path

import pytest


def exchange(port: int, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes, and return the status, headers and body of what comes back."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(request)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65536):
                answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, body


def post(path: str, body: bytes, *headers: str, host: str = "127.0.0.1") -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def served_to_others(request: pytest.FixtureRequest, lake: Path, *words: str) -> subprocess.Popen[str]:
    """Start a server that others can reach. It ends with the test at the latest."""
    command = [sys.executable, "-m", "alluvia.cli", "serve", "--lake", str(lake), "--port", "0", "--host", "0.0.0.0"]
    process = subprocess.Popen([*command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    request.addfinalizer(process.kill)
    return process
