"""`--flight-port`: nothing is loaded without it, and what is missing is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import alluvia
from alluvia.errors import Invalid, NotInstalled
from alluvia.server.serve import Options, running


def test_grpc_is_loaded_only_when_asked_for() -> None:
    script = """
import sys, alluvia
from alluvia.server.serve import in_background
with in_background(alluvia.connect("memory://x")):
    assert not {"grpc", "alluvia.flight"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("alluvia.flight", "grpc"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc", None)
    options = Options(merge_seconds=0, vacuum_seconds=0, flight_port=0)
    with pytest.raises(NotInstalled, match=r"Flight SQL needs the package grpc: pip install 'alluvia\[flight\]'"):
        running(alluvia.connect("memory://x"), options).__enter__()


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    lake = alluvia.connect(tmp_path)
    options = Options(merge_seconds=0, vacuum_seconds=0, log_requests=False, flight_port=0)
    with running(lake, options) as served:
        taken = Options(merge_seconds=0, vacuum_seconds=0, log_requests=False, flight_port=served.flight_port)
        with pytest.raises(Invalid, match=rf"--flight-port {served.flight_port} of 127.0.0.1"), running(lake, taken):
            pass
