"""Servers of this user on this machine: each announces its lake in a file, for commands that talk to it.

The file is in the user's state directory and only its owner can read it. It has a key by which a request proves that it
comes from the same user, who may read the reasons that the server's log has. The server holds a lock on the file, which
ends with the process, however it ends.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import orjson

from alluvia.store.uris import canonical_place


class RunningServer(NamedTuple):
    """A server of this user: its address, such as http://127.0.0.1:8080, and the key of its operator."""

    url: str
    key: str


def state_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of the state of the user's programs: by the XDG specification, which ignores relative paths."""
    state = environment.get("XDG_STATE_HOME", "")
    root = Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state"
    return root / "alluvia"


@contextmanager
def announced(lake: str, endpoint_url: str | None, server: RunningServer) -> Iterator[None]:
    """Announce a server of a lake, by the lake's URI or path, until the block ends. Raises `OSError`.

    The file gets its name when it is locked and complete: until then, a look-up would take it for that of a server that
    has ended. No other server gets the same name, so a look-up never removes the file of a later one.
    """
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path in folder.glob("*.json"):
        _read(path)  # which removes those of servers that were killed
    file, begun = tempfile.mkstemp(dir=folder)
    announcement = folder / f"{_name(lake, endpoint_url)}-{secrets.token_hex(8)}.json"
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        os.write(file, orjson.dumps(server._asdict()))
        Path(begun).rename(announcement)
        yield
    finally:
        announcement.unlink(missing_ok=True)
        Path(begun).unlink(missing_ok=True)
        os.close(file)


def running_servers(lake: str, endpoint_url: str | None) -> list[RunningServer]:
    """Return the servers of a lake that this user runs on this machine, the newest first."""
    with suppress(RuntimeError):  # a user without a home
        found = (_read(path) for path in _folder().glob(f"{_name(lake, endpoint_url)}-*.json"))
        newest_first = sorted(filter(None, found), reverse=True)
        return [server for _, server in newest_first]
    return []


def new_key() -> str:
    """Return a key for the operator of a server."""
    return secrets.token_urlsafe(32)


def _folder() -> Path:
    return state_folder(os.environ) / "servers"


def _name(lake: str, endpoint_url: str | None) -> str:
    place = canonical_place(lake)
    if "://" not in place:
        place, endpoint_url = str(Path(place).resolve()), None
    return hashlib.sha256(f"{place.rstrip('/')} {endpoint_url or ''}".encode()).hexdigest()[:32]


def _read(path: Path) -> tuple[int, RunningServer] | None:
    """Return when a file was written, and what it announces; None if its server has ended, whose file is then removed.

    None for another user's file, too: root's, say, after `sudo alluvia serve`.
    """
    try:
        file = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, PermissionError):
        return None
    try:
        said = os.fstat(file)
        if said.st_uid != os.getuid():
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return said.st_mtime_ns, RunningServer(**orjson.loads(os.read(file, 10_000)))
        path.unlink(missing_ok=True)
        return None
    finally:
        os.close(file)
