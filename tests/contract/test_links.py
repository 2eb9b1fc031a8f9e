"""Symbolic links lead out of no table."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import alluvia
from alluvia.clock import SystemClock
from alluvia.engine.duck.views import Views
from alluvia.errors import AlluviaError, Unsupported
from alluvia.store import open_store
from tests.contract.logs_of_others import COLUMNS, SECRET, World, leads_nowhere, new_world, to
from tests.s3server import S3Server


@pytest.fixture(params=["directory", "memory", "s3"])
def world(request: pytest.FixtureRequest, tmp_path: Path, s3_server: S3Server) -> World:
    return new_world(request.param, tmp_path, s3_server)


def as_link(link: Path, target: Path) -> None:
    if link.is_dir() and not link.is_symlink():
        for each in sorted(link.rglob("*"), reverse=True):
            if each.is_dir():
                each.rmdir()
            else:
                each.unlink()
        link.rmdir()
    else:
        link.unlink(missing_ok=True)
    link.symlink_to(target)


@pytest.mark.parametrize("what", ["file", "folder", "log", "commit", "vector"])
@pytest.mark.parametrize("whose", ["theirs", "ours"])
def test_no_link_leads_out_of_a_table(tmp_path: Path, what: str, whose: str) -> None:
    place = str(tmp_path / "share")
    world = World(str(tmp_path / "lake"), place, {}, open_store(place, SystemClock()))
    root = tmp_path / ("share/other" if whose == "theirs" else "lake/secret")
    (file,) = world.theirs if whose == "theirs" else world.ours
    shared = tmp_path / "share" / "shared"
    if what == "file":
        as_link(next(shared.glob("part-*.parquet")), root / file.path)
    elif what == "folder":
        (shared / "in").symlink_to(root)
        world.forge(1, to(f"in/{file.path}"))
        (shared / "_delta_log" / f"{2:020d}.json").unlink()
    elif what == "log":
        as_link(shared / "_delta_log", root / "_delta_log")
    elif what == "commit":
        as_link(shared / "_delta_log" / f"{1:020d}.json", root / "_delta_log" / f"{1:020d}.json")
    else:
        as_link(next(shared.glob("deletion_vector_*")), root / file.path)
    if what not in ("log", "commit"):
        leads_nowhere(world.lake)
    reads: list[Callable[[], object]] = [
        lambda: world.lake["shared"].to_arrow(),
        lambda: world.lake.sql("SELECT * FROM shared"),
    ]
    for read in reads:
        with pytest.raises(Unsupported, match="symbolic link out of its table's folder"):
            read()


@pytest.mark.parametrize("what", ["file", "folder", "table"])
def test_a_link_that_comes_between_the_look_and_the_reading_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    place = str(tmp_path / "share")
    world = World(str(tmp_path / "lake"), place, {}, open_store(place, SystemClock()))
    shared, secret = tmp_path / "share" / "shared", tmp_path / "lake" / "secret"
    (file,), (ours,) = world.lake["shared"].snapshot().files, world.ours
    (shared / "in").mkdir()
    (shared / "in" / ours.path).write_bytes((shared / file.path).read_bytes())
    world.forge(1, to(f"in/{ours.path}"))
    (shared / "_delta_log" / f"{2:020d}.json").unlink()
    assert world.lake["shared"].to_arrow(["id"]).to_pylist() == [{"id": 1}, {"id": 2}]
    create = Views.create

    def swap(*args: Any, **options: Any) -> None:
        if what == "file":
            as_link(shared / "in" / ours.path, secret / ours.path)
        elif what == "folder":
            as_link(shared / "in", secret)
        else:
            as_link(shared, tmp_path / "elsewhere")
            (tmp_path / "elsewhere").mkdir()
            (tmp_path / "elsewhere" / "in").symlink_to(secret)
        create(*args, **options)

    monkeypatch.setattr(Views, "create", swap)
    monkeypatch.setattr("alluvia.query.process.session.footer", lambda *_: b"")  # the query's process reads all of it
    with pytest.raises(AlluviaError) as caught:
        print(world.lake.sql("SELECT id FROM shared").to_pylist())  # noqa: T201 - what a failure shows
    assert str(SECRET) not in str(caught.value)
    if what != "table":
        monkeypatch.undo()
        with pytest.raises(Unsupported, match="symbolic link out of its table's folder"):
            world.lake.sql("SELECT id FROM shared")


def test_a_place_that_is_a_link_is_judged_by_where_it_leads(tmp_path: Path) -> None:
    place = str(tmp_path / "share")
    world = World(str(tmp_path / "lake"), place, {}, open_store(place, SystemClock()))
    elsewhere = alluvia.connect(tmp_path / "elsewhere").create_table("t", COLUMNS)
    elsewhere.append([{"id": SECRET, "name": "x"}])
    (tmp_path / "share" / "in").symlink_to(tmp_path / "lake" / "secret")
    (tmp_path / "share" / "out").symlink_to(tmp_path / "elsewhere" / "t")
    (tmp_path / "share" / "same").symlink_to(tmp_path / "share" / "other")
    for name, why in (("in", "leads into the lake"), ("out", "not below a place that this server may read")):
        with pytest.raises(AlluviaError, match=why):
            world.lake.attach(name, f"{place}/{name}")
        with pytest.raises(AlluviaError, match=why):
            world.lake.create_external(name, f"{place}/{name}/*.parquet")
    world.lake.attach("same", f"{place}/same")
    assert world.lake["same"].count() == 1
    (tmp_path / "share" / "same").unlink()
    (tmp_path / "share" / "same").symlink_to(tmp_path / "lake" / "secret")
    with pytest.raises(AlluviaError, match="leads into the lake"):
        world.lake["same"].to_arrow()


def test_links_in_an_external_table_and_a_converted_folder(tmp_path: Path) -> None:
    place = str(tmp_path / "share")
    world = World(str(tmp_path / "lake"), place, {}, open_store(place, SystemClock()))
    (ours,) = world.ours
    secret = tmp_path / "lake" / "secret" / ours.path
    for folder in (tmp_path / "share" / "files", tmp_path / "lake" / "converted", tmp_path / "lake" / "nested"):
        folder.mkdir()
        (folder / "own.parquet").write_bytes((tmp_path / "share" / "other" / world.theirs_name).read_bytes())
    (tmp_path / "share" / "files" / "link.parquet").symlink_to(secret)
    (tmp_path / "lake" / "converted" / "link.parquet").symlink_to(secret)
    (tmp_path / "lake" / "nested" / "sub").symlink_to(tmp_path / "lake" / "secret")
    makes: list[Callable[[], object]] = [
        lambda: world.lake.create_external("e", f"{place}/files/*.parquet"),
        lambda: world.lake.create_external("e", f"{place}/files/link.parquet"),
        lambda: world.lake.convert("converted", "converted"),
        lambda: world.lake.convert("nested", "nested"),
    ]
    for make in makes:
        with pytest.raises(Unsupported, match="symbolic link out of its table's folder"):
            make()
    world.lake.create_external("e", f"{place}/files/own.parquet")
    assert world.lake["e"].count() == 1
    as_link(tmp_path / "share" / "files" / "own.parquet", secret)
    os.utime(secret)
    with pytest.raises(Unsupported, match="symbolic link out of its table's folder"):
        world.lake["e"].to_arrow()
