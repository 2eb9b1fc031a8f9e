"""A lake, a table of others in it, and files beside that no table has."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import alluvia
from alluvia.clock import SystemClock
from alluvia.errors import AlluviaError
from alluvia.store import Store, open_store
from tests.s3server import S3Server

SECRET = 471147114711
COLUMNS = {"id": "long", "name": "string"}
Json = dict[str, Any]


@dataclass
class World:
    """A lake with the table `secret`, and others' tables `shared` and `other` in a place outside it."""

    lake_uri: str
    place: str
    options: dict[str, Any]
    outside: Store

    def __post_init__(self) -> None:
        theirs = alluvia.connect(self.place, **self.options)
        shared = theirs.create_table("shared", COLUMNS, properties={"delta.enableDeletionVectors": "true"})
        shared.append([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
        shared.delete("id = 2")
        theirs.create_table("other", COLUMNS).append([{"id": SECRET, "name": "theirs"}])
        self.lake.create_table("secret", COLUMNS).append([{"id": SECRET, "name": "ours"}])
        self.theirs = theirs["other"].snapshot().files
        self.ours = self.lake["secret"].snapshot().files
        self.lake.attach("shared", f"{self.place}/shared")
        self.lake.attach("other", f"{self.place}/other")

    @property
    def theirs_name(self) -> str:
        return next(iter(self.theirs)).path

    @property
    def lake(self) -> alluvia.Lake:
        return alluvia.connect(self.lake_uri, outside=[self.place], **self.options)

    def their_log(self, version: int) -> list[Json]:
        data = self.outside.get(f"shared/_delta_log/{version:020d}.json")
        return [json.loads(line) for line in data.splitlines()]

    def forge(self, version: int, change: Callable[[Json], None], kind: str = "add") -> None:
        """Write a commit of the attached table again, with its actions of a kind changed."""
        log = self.their_log(version)
        for action in log:
            if kind in action:
                change(action[kind])
        body = "\n".join(map(json.dumps, log)).encode()
        self.outside.put(f"shared/_delta_log/{version:020d}.json", body)

    def targets(self) -> list[str]:
        """Paths to others' files as a log may have them, encoded."""
        (theirs,), (ours,) = self.theirs, self.ours
        lake = self.lake_uri.rpartition("://")[2].lstrip("/")
        inside, besides = f"secret/{quote(ours.path)}", f"other/{quote(theirs.path)}"
        up = "../" * 12
        found = [f"../{besides}", f"a/../../{besides}", f"./../{besides}", f".//..//{besides}"]
        found += [f"%2e%2e/{besides}", f"..%2F{besides}", f"%2E%2E%2F{quote(besides, safe='')}"]
        found += [f"{up}{inside}", f"{up}{lake}/{inside}", f"{'../' * 3}{inside}", f"{'../' * 4}{inside}"]
        found += [f"%252e%252e/{besides}", f"{self.place}/{besides}", f"{self.place}/shared/../{besides}"]
        found += [f"{self.place}/shared/%2e%2e/{besides}", f"{self.place}/shared//../{besides}"]
        found += [f"{self.lake_uri}/{inside}", f"{self.place}/shared/{up}{lake}/{inside}"]
        if self.place.startswith("s3://"):
            found += [f"s3a{found[-1].removeprefix('s3')}", f"S3{self.place.removeprefix('s3')}/{besides}"]
        elif "://" not in self.place:
            found += [f"file://{each}" for each in found if each.startswith("/")]
            found += [f"file:{self.place}/{besides}", f"FILE:///{self.lake_uri.lstrip('/')}/{inside}"]
        return found


def to(path: str) -> Callable[[Json], None]:
    """Return what has an action name a file by a path."""
    return lambda action: action.update(path=path)


def said(tell: Callable[[], object]) -> str:
    try:
        return repr(tell())
    except AlluviaError as error:
        return str(error)


def leads_nowhere(lake: alluvia.Lake, name: str = "shared") -> None:
    """Read a table in every way: nothing comes of it but errors, and what the table's log itself says."""
    for read in (
        lambda: lake[name].to_arrow().to_pylist(),
        lambda: lake.sql(f"SELECT * FROM {name}").to_pylist(),
        lambda: lake.sql(f"SELECT max(id + 1) FROM {name}").to_pylist(),
        lambda: lake.clone(name, f"{name}_copy", deep=True),
    ):
        with pytest.raises(AlluviaError) as caught:
            print(read())  # noqa: T201 - what a failure shows
        assert str(SECRET) not in str(caught.value)
        assert "PAR1" not in str(caught.value)
    for tell in (
        lambda: lake[name].to_arrow(where=f"id = {SECRET}").to_pylist(),
        lambda: lake.sql(f"SELECT max(id), count(*) FROM {name}").to_pylist(),
        lambda: lake.sql(f"SELECT * FROM files('{name}')").to_pylist(),
        lambda: lake[name].changes(1).read_all().to_pylist(),
        lambda: lake[name].verify(full=True).findings,
    ):
        assert str(SECRET) not in said(tell)
    assert not lake[name].verify().ok


def new_world(kind: str, tmp_path: Path, s3_server: S3Server) -> World:
    options: dict[str, Any] = {}
    if kind == "directory":
        lake, place = str(tmp_path / "lake"), str(tmp_path / "share")
    elif kind == "memory":
        lake, place = f"memory://{tmp_path.name}/lake", f"memory://{tmp_path.name}/share"
    else:
        options = s3_server.options
        lake, place = (f"s3://{s3_server.new_bucket()}/{name}" for name in ("lake", "share"))
    return World(lake, place, options, open_store(place, SystemClock(), **options))
