"""A log of others leads to no file but those of its own table, whatever it names, and by whatever door it is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from alluvia.clock import SystemClock
from alluvia.delta.refs import CLONE, OWNER, Keeper, put_keeper
from alluvia.errors import Unsupported
from alluvia.serverless.settings import environment
from functions.query import handler as query
from tests.access import grant, token
from tests.contract.logs_of_others import COLUMNS, SECRET, Json, World, leads_nowhere, new_world, to
from tests.functions.test_query import event
from tests.s3server import S3Server


@pytest.fixture(params=["directory", "memory", "s3"])
def world(request: pytest.FixtureRequest, tmp_path: Path, s3_server: S3Server) -> World:
    return new_world(request.param, tmp_path, s3_server)


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
