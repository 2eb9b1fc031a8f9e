"""Tables of other writers whose protocol has more than the table uses: they are written, and stay what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import alluvia
from alluvia.api.lake import Table
from alluvia.errors import Invalid, Unsupported
from tests.judges import canonical

ROWS = pa.table({"n": [1, 2, 3], "name": ["a", "b", "c"]})


def with_protocol(place: Path, protocol: dict[str, Any], **marks: object) -> Table:
    """Have deltalake write a table, give it a protocol, and its column `n` some metadata."""
    write_deltalake(place / "t", ROWS)
    path = place / "t" / "_delta_log" / f"{0:020d}.json"
    log = [json.loads(line) for line in path.read_text().splitlines()]
    for action in log:
        if "protocol" in action:
            action["protocol"] = protocol
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            schema["fields"][0]["metadata"] |= marks
            action["metaData"]["schemaString"] = json.dumps(schema)
    path.write_text("\n".join(map(json.dumps, log)))
    return alluvia.connect(place)["t"]


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_a_writer_version_is_written_as_far_as_it_is_used(tmp_path: Path, version: int) -> None:
    protocol = {"minReaderVersion": 2 if version > 4 else 1, "minWriterVersion": version}
    table = with_protocol(tmp_path, protocol)
    table.append([{"n": 4, "name": "d"}])
    table.delete("n = 1")
    table.update({"name": "'x'"}, where="n = 2")
    table.upsert([{"n": 3, "name": "y"}, {"n": 5, "name": "e"}], on=["n"])
    table.optimize()
    assert table.snapshot().protocol.to_json() == protocol
    expected = [(2, "x"), (3, "y"), (4, "d"), (5, "e")]
    assert sorted((row["n"], row["name"]) for row in table.to_arrow().to_pylist()) == expected
    theirs = DeltaTable(tmp_path / "t")
    assert theirs.protocol().min_writer_version == version
    if version < 5:  # deltalake's Arrow reader has no column mapping
        assert canonical(pa.table(theirs.to_pyarrow_table())) == canonical(table.to_arrow())
    table.evolve(properties={"delta.enableDeletionVectors": "true"})
    features = table.snapshot().protocol
    assert (features.min_reader_version, features.min_writer_version) == (3, 7)
    assert {"appendOnly", "invariants", "checkConstraints", "deletionVectors"} <= {*(features.writer_features or ())}
    assert ("identityColumns" in (features.writer_features or ())) == (version == 6)


def test_what_a_version_stands_for_is_in_effect(tmp_path: Path) -> None:
    """deltalake gives a table with a constraint or a change feed the version that stands for it."""
    write_deltalake(tmp_path / "t", ROWS, configuration={"delta.enableChangeDataFeed": "true"})
    theirs = DeltaTable(tmp_path / "t")
    assert theirs.protocol().min_writer_version == 4
    theirs.alter.add_constraint({"few": "n < 10"})
    table = alluvia.connect(tmp_path)["t"]
    with pytest.raises(Invalid, match="few"):
        table.append([{"n": 10, "name": "x"}])
    table.update({"name": "'x'"}, where="n = 2")
    version = table.version
    changes = DeltaTable(tmp_path / "t").load_cdf(starting_version=version)
    found = pa.table(changes.read_all()).select(["n", "name", "_change_type"]).to_pylist()
    assert sorted((row["_change_type"], row["name"]) for row in found) == [
        ("update_postimage", "x"),
        ("update_preimage", "b"),
    ]
    mine = table.changes(version, version).read_all().to_pylist()
    assert len(mine) == 2


LISTED = {"minReaderVersion": 3, "minWriterVersion": 7}


@pytest.mark.parametrize(
    ("readers", "writers"),
    [
        (["variantType"], ["variantType"]),
        (["variantType-preview", "variantShredding-preview"], ["variantType-preview", "variantShredding-preview"]),
        (["typeWidening"], ["typeWidening"]),
        ([], ["generatedColumns", "identityColumns", "allowColumnDefaults"]),
    ],
)
def test_a_feature_that_no_column_uses_binds_nobody(tmp_path: Path, readers: list[str], writers: list[str]) -> None:
    protocol = {**LISTED, "readerFeatures": readers, "writerFeatures": [*writers, "appendOnly"]}
    table = with_protocol(tmp_path, protocol)
    table.append([{"n": 4, "name": "d"}])
    table.delete("n = 1")
    assert sorted(table.to_arrow()["n"].to_pylist()) == [2, 3, 4]
    assert table.snapshot().protocol.to_json() == protocol


@pytest.mark.parametrize(
    ("protocol", "mark", "named"),
    [
        ({"minReaderVersion": 1, "minWriterVersion": 4}, {"delta.generationExpression": "n + 1"}, "generatedColumns"),
        ({"minReaderVersion": 2, "minWriterVersion": 6}, {"delta.identity.start": 1}, "identityColumns"),
        ({**LISTED, "readerFeatures": [], "writerFeatures": ["identityColumns"]}, {"delta.identity.step": 1}, "id"),
        ({**LISTED, "readerFeatures": [], "writerFeatures": ["allowColumnDefaults"]}, {"CURRENT_DEFAULT": "7"}, "a"),
        ({**LISTED, "readerFeatures": [], "writerFeatures": ["rowTracking"]}, {}, "rowTracking"),
    ],
)  # fmt: skip
def test_a_feature_that_a_column_uses_is_refused_by_name(
    tmp_path: Path, protocol: dict[str, Any], mark: dict[str, object], named: str
) -> None:
    table = with_protocol(tmp_path, protocol, **mark)
    assert table.count() == 3
    with pytest.raises(Unsupported, match=f"writer feature {named}"):
        table.append([{"n": 4, "name": "d"}])
