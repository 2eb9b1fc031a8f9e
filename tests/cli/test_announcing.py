"""Servers announce themselves to commands of the same user, and a look-up at any moment does no harm."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from alluvia.server.announcing import RunningServer, announced, running_servers

SERVER = RunningServer("http://127.0.0.1:8080", "k" * 43)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "alluvia" / "servers"


def test_a_look_up_before_the_file_is_locked_does_not_remove_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = fcntl.flock
    looks = []

    def look_first(file: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX:
            looks.append(running_servers("/lake", None))
        lock(file, operation)
        if operation == fcntl.LOCK_EX:
            looks.append(running_servers("/lake", None))

    monkeypatch.setattr(fcntl, "flock", look_first)
    with announced("/lake", None, SERVER):
        assert looks == [[], []]
        assert running_servers("/lake", None) == [SERVER]
    assert running_servers("/lake", None) == []


def test_what_killed_servers_left_goes_when_a_server_of_any_lake_begins(folder: Path) -> None:
    folder.mkdir(parents=True)
    left = folder / f"{'0' * 32}-4711.json"
    left.write_bytes(b"{}")
    with announced("/lake", None, SERVER), announced("/other", None, SERVER):
        assert not left.exists()
        assert running_servers("/lake", None) == running_servers("/other", None) == [SERVER]
        assert [each.stat().st_mode & 0o777 for each in folder.iterdir()] == [0o600, 0o600]
    assert list(folder.iterdir()) == []


def test_the_newest_server_comes_first(folder: Path) -> None:
    second = SERVER._replace(url="http://127.0.0.1:8081")
    with announced("/lake", None, SERVER), announced("/lake", None, second):
        assert len(running_servers("/lake", None)) == 2
        for each in folder.iterdir():
            os.utime(each, (1, 1 if b"8081" in each.read_bytes() else 2))
        assert running_servers("/lake", None) == [SERVER, second]


def test_a_file_that_this_user_cannot_read_announces_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with announced("/lake", None, SERVER):
        [path] = folder.iterdir()

        def refuse(place: str | Path, *_: object) -> int:
            raise PermissionError(13, "Permission denied", str(place))

        monkeypatch.setattr(os, "open", refuse)
        assert running_servers("/lake", None) == []
        monkeypatch.undo()
        assert path.exists()
