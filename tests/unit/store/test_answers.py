"""What makes an answer of S3's whole."""

from __future__ import annotations

import pytest

from alluvia.store.answers import is_whole

DATE = "Fri, 20 Nov 2026 12:00:00 GMT"


@pytest.mark.parametrize(
    ("method", "status", "headers", "body"),
    [
        ("GET", 200, {"content-length": "3"}, b"abc"),
        ("GET", 200, {"content-length": "0"}, b""),
        ("GET", 206, {"content-length": "900"}, object()),
        ("GET", 404, {"transfer-encoding": "chunked"}, b"<Error/>"),
        ("GET", 200, {"transfer-encoding": "Chunked"}, b"<List/>"),
        ("GET", 304, {}, b""),
        ("DELETE", 204, {}, b""),
        ("PUT", 200, {"content-length": "0"}, b""),
        ("HEAD", 200, {"content-length": "900", "last-modified": DATE}, b""),
        ("HEAD", 404, {}, b""),
        ("HEAD", 404, {"content-length": "200"}, b""),
    ],
)
def test_a_whole_answer(method: str, status: int, headers: dict[str, str], body: object) -> None:
    assert is_whole(method, status, headers, body)


@pytest.mark.parametrize(
    ("method", "status", "headers", "body"),
    [
        ("GET", 200, {}, b""),
        ("GET", 200, {}, object()),
        ("GET", 200, {"content-length": ""}, b""),
        ("GET", 200, {"content-length": "9"}, b""),
        ("GET", 200, {"content-length": "9"}, b"<?xml"),
        ("GET", 200, {"transfer-encoding": "chun"}, b""),
        ("PUT", 200, {}, b""),
        ("PUT", 412, {"content-length": "9"}, b""),
        ("HEAD", 200, {"last-modified": DATE}, b""),
        ("HEAD", 200, {"content-length": "900"}, b""),
        ("HEAD", 200, {"content-length": "900", "last-modified": DATE[:-1]}, b""),
    ],
)
def test_half_an_answer(method: str, status: int, headers: dict[str, str], body: object) -> None:
    assert not is_whole(method, status, headers, body)
