"""The folder for temporary files, from several threads at once."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from alluvia import scratch


def test_threads_that_come_first_together_share_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first waits, with its folder made, for the second to look around; or goes on if that has to wait."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made, looked = Event(), Event()
    make = tempfile.mkdtemp

    def slowly(*args: str, **options: str) -> str:
        found = make(*args, **options)
        if not made.is_set():
            made.set()
            looked.wait(0.2)
        return found

    def second() -> Path:
        made.wait()
        found = scratch.scratch_root()
        looked.set()
        return found

    monkeypatch.setattr(tempfile, "mkdtemp", slowly)
    with ThreadPoolExecutor(2) as pool:
        found = {each.result() for each in [pool.submit(scratch.scratch_root), pool.submit(second)]}
    assert len(found) == 1
    assert found.pop().is_dir()
