"""Sixteen processes, killed throughout, over a bad network; `make chaos` runs it for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.chaos import Place, place_on, run
from tests.s3server import S3Endpoint, S3Server

SECONDS = 6
SEED = 20


@pytest.mark.slow
def test_every_acknowledged_event_is_in_the_directory_once(tmp_path: Path) -> None:
    report = run(Place(str(tmp_path / "lake"), {}, {}), "directory", SECONDS, SEED)
    assert report.kills
    assert report.duplicates_suppressed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["s3_server", "s3proxy"])
def test_every_acknowledged_event_is_on_the_server_once(request: pytest.FixtureRequest, name: str) -> None:
    server: S3Endpoint = request.getfixturevalue(name)
    if isinstance(server, S3Server):
        server.inject()
    with place_on(server, SEED) as where:
        report = run(where, name, SECONDS, SEED)
    assert report.kills
    assert report.connections_cut
    assert report.duplicates_suppressed
