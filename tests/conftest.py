"""Fixtures that several kinds of tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.s3server import S3Server, running_server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 server with exact conditional writes, one for each test process."""
    with running_server() as server:
        yield server
