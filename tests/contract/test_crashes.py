"""A process that dies within a put to a directory leaves the object, or nothing."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from alluvia.store import DirectoryStore, PutResult
from tests.contract.workers import Worker

STEPS = 12


@pytest.mark.parametrize("method", ["put_if_absent", "put_new", "put"])
def test_a_crash_between_any_two_steps_leaves_all_or_nothing(method: str, tmp_path: Path) -> None:
    worker = Worker("crash_in_put", {"uri": str(tmp_path), "key": "a/b", "method": method, "steps": STEPS})
    assert worker.line() == "ready"
    worker.go()
    seen = set()
    for step in range(STEPS):
        root = tmp_path / str(step)
        died_of = worker.line()
        assert died_of in (0, signal.SIGKILL)
        store = DirectoryStore(root)
        listed = [info.key for info in store.list("")]
        assert listed in ([], ["a/b"])
        if listed:
            assert store.get("a/b") == b"whole"
        expected = PutResult.EXISTS if listed else PutResult.CREATED
        assert store.put_if_absent("a/b", b"next") is expected
        store.sweep("", store.list("").__next__().modified_ms + 1_000_000)
        assert [path.name for path in root.rglob("*") if path.is_file()] == ["b"]
        seen.add((died_of == 0, bool(listed)))
    assert seen == {(False, False), (False, True), (True, True)}
