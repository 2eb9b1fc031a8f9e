"""A log of others leads to no file but those of its own table, whatever it names, and by whatever door it is read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import alluvia
from alluvia.clock import SystemClock
from alluvia.delta.refs import CLONE, OWNER, Keeper, put_keeper
from alluvia.engine.duck.views import Views
from alluvia.errors import AlluviaError, Unsupported
from alluvia.serverless.settings import environment
from alluvia.store import Store, open_store
from functions.query import handler as query
from tests.access import grant, token
from tests.functions.test_query import event
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


@pytest.fixture(params=["directory", "memory", "s3"])
def world(request: pytest.FixtureRequest, tmp_path: Path, s3_server: S3Server) -> World:
    options: dict[str, Any] = {}
    if request.param == "directory":
        lake, place = str(tmp_path / "lake"), str(tmp_path / "share")
    elif request.param == "memory":
        lake, place = f"memory://{tmp_path.name}/lake", f"memory://{tmp_path.name}/share"
    else:
        options = s3_server.options
        lake, place = (f"s3://{s3_server.new_bucket()}/{name}" for name in ("lake", "share"))
    return World(lake, place, options, open_store(place, SystemClock(), **options))


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


def test_no_data_file_of_others_is_read(world: World) -> None:
    for path in world.targets():
        world.forge(1, to(path))
        world.outside.delete([f"shared/_delta_log/{2:020d}.json"])
        leads_nowhere(world.lake)


def test_a_path_that_winds_back_into_the_table_is_read(world: World) -> None:
    (file,) = world.lake["shared"].snapshot().files
    for path in (f"./{file.path}", f"x/../{file.path}", f"../shared/{file.path}", f"{world.place}/shared/{file.path}"):
        for version in (1, 2):
            world.forge(version, to(path))
            world.forge(version, to(path), "remove")
        assert world.lake["shared"].to_arrow().to_pylist() == [{"id": 1, "name": "a"}]
        assert world.lake.sql("SELECT * FROM shared").to_pylist() == [{"id": 1, "name": "a"}]


def test_no_deletion_vector_of_others_is_read(world: World) -> None:
    def vector_at(path: str, kind: str) -> Callable[[Json], None]:
        def change(add: Json) -> None:
            add["deletionVector"] = {
                "storageType": kind,
                "pathOrInlineDv": path,
                "offset": 1,
                "sizeInBytes": 34,
                "cardinality": 1,
            }

        return change

    (vector,) = (file.deletion_vector for file in world.lake["shared"].snapshot().files)
    assert vector is not None
    for path in world.targets():
        if "://" in path or path.startswith(("/", "file:", "FILE:")):
            world.forge(2, vector_at(path, "p"))
            with pytest.raises(Unsupported, match="outside the table's folder"):
                world.lake["shared"].to_arrow()
            leads_nowhere(world.lake)
    for prefix in ("..", "../other", "../../../..", "a/../..", "../../../../secret"):
        world.forge(2, vector_at(f"{prefix}{vector['pathOrInlineDv'][-20:]}", "u"))
        with pytest.raises(Unsupported, match="outside the table's folder"):
            world.lake["shared"].to_arrow()


def test_no_change_file_of_others_is_read(world: World) -> None:
    for path in world.targets()[:3] + world.targets()[-3:]:
        log = world.their_log(1)
        cdc = {"path": path, "partitionValues": {}, "size": 700, "dataChange": False}
        body = "\n".join(map(json.dumps, [*log, {"cdc": cdc}])).encode()
        before = world.outside.get(f"shared/_delta_log/{1:020d}.json")
        world.outside.put(f"shared/_delta_log/{1:020d}.json", body)
        with pytest.raises(Unsupported, match="outside the table's folder"):
            world.lake["shared"].changes(1, 1).read_all()
        world.outside.put(f"shared/_delta_log/{1:020d}.json", before)


def test_what_a_log_claims_for_itself_opens_nothing(world: World) -> None:
    """A log elsewhere may say that it is a clone or an external table of ours, and name a keeper that is there."""
    keeper = Keeper(CLONE, "shared.x", "secret", "an-id", "another", 1, created_ms=1, details={OWNER: "shared"})
    assert put_keeper(world.lake.store, SystemClock(), keeper)
    folders = [f"{world.lake_uri}/secret", f"{world.place}/other", "/", world.lake_uri]
    claims = {
        "alluvia.clone": json.dumps([{"table": "secret", "keeper": "shared.x"}]),
        "alluvia.external": json.dumps({"locations": folders, "format": "parquet", "folders": folders}),
    }
    for name, text in claims.items():

        def claim(body: Json, name: str = name, text: str = text) -> None:
            body["configuration"].update({name: text})

        world.forge(0, claim, "metaData")
        for path in world.targets()[::4]:
            world.forge(1, to(path))
            world.outside.delete([f"shared/_delta_log/{2:020d}.json"])
            leads_nowhere(world.lake)


def test_a_log_in_the_lake_claims_no_other_table(world: World) -> None:
    """A writer that may write one table's folder may not read the rest of the lake through it."""
    lake = world.lake
    (ours,) = world.ours
    table = lake.create_table("open", COLUMNS, properties={"alluvia.writers": "any"})
    table.append([{"id": 1, "name": "a"}])
    clone = json.dumps([{"table": "secret", "keeper": "secret.mine"}])
    keeper = Keeper(CLONE, "secret.mine", "secret", "an-id", "another", 1, created_ms=1, details={OWNER: "its_own"})
    assert put_keeper(lake.store, SystemClock(), keeper)
    for claimed in ({}, {"alluvia.clone": clone}, {"alluvia.clone": clone.replace("secret.mine", "none")}):
        for path in (f"../secret/{ours.path}", f"{world.lake_uri}/secret/{ours.path}", f"%2e%2e/secret/{ours.path}"):
            for version, kind, change in ((0, "metaData", claimed), (1, "add", {"path": path})):
                key = f"open/_delta_log/{version:020d}.json"
                log = [json.loads(line) for line in lake.store.get(key).splitlines()]
                for action in log:
                    if kind in action:
                        (action[kind]["configuration"] if kind == "metaData" else action[kind]).update(change)
                lake.store.put(key, "\n".join(map(json.dumps, log)).encode())
            leads_nowhere(world.lake, "open")


def test_a_clone_of_ours_reads_the_files_that_are_kept_for_it(world: World) -> None:
    world.lake.clone("secret", "dev")
    world.lake.clone("dev", "dev_of_dev")
    for name in ("dev", "dev_of_dev"):
        assert world.lake[name].to_arrow().to_pylist() == [{"id": SECRET, "name": "ours"}]
        assert world.lake.sql(f"SELECT name FROM {name}").to_pylist() == [{"name": "ours"}]
        assert world.lake.branch(f"on-{name.replace('_', '-')}")[name].count() == 1
    world.lake["dev"].append([{"id": 1, "name": "b"}])
    world.lake["dev"].delete(f"id = {SECRET}")
    assert world.lake["dev"].to_arrow().to_pylist() == [{"id": 1, "name": "b"}]
    assert world.lake["dev"].to_arrow(version=0).to_pylist() == [{"id": SECRET, "name": "ours"}]


def test_a_token_for_one_table_gets_no_others(world: World, tmp_path: Path) -> None:
    if world.lake_uri.startswith("memory"):
        names: dict[str, str] = {}
    elif world.options:
        names = {
            "AWS_ENDPOINT_URL_S3": world.options["endpoint_url"],
            "AWS_ACCESS_KEY_ID": world.options["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": world.options["secret_access_key"],
            "AWS_REGION": world.options["region"],
        }
    else:
        names = {}
    names |= {"ALLUVIA_LAKE": world.lake_uri, "ALLUVIA_OUTSIDE": world.place, "ALLUVIA_AUTH": "tokens"}
    with environment({**names, "XDG_CONFIG_HOME": str(tmp_path / "config")}):
        bearer = token(world.lake, grant("read:shared"))
        for path in world.targets():
            world.forge(1, to(path))
            world.outside.delete([f"shared/_delta_log/{2:020d}.json"])
            for text in ("SELECT * FROM shared", "SELECT max(id) FROM shared", "SELECT * FROM files('shared')"):
                sent = event(json.dumps({"query": text})) | {"headers": {"Authorization": f"Bearer {bearer}"}}
                answer = query.handler(sent, None)
                assert str(SECRET) not in answer["body"]
                assert (answer["statusCode"] == 200) == ("files" in text), answer["body"]


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
    monkeypatch.setattr("alluvia.query.process.session.footer", lambda _: b"")  # the query's process reads all of it
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
