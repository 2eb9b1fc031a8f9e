"""Tables that delta-spark makes with its features on: the statements, and what we do with such a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

INSERT = "INSERT INTO {t} VALUES "
ROWS = INSERT + "(1, 'a'), (2, 'b'), (3, NULL)"


@dataclass(frozen=True, slots=True)
class Made:
    """A table of Spark's: `{t}` is its name, `{other}` another's. `rows` counts the rows of its versions from 0.

    `unwritten` is what the errors say with which we refuse to write it, `no_rows` with which we refuse to add rows to
    it; empty if we do not. `shown` is what Spark selects to give the rows that we give.
    """

    name: str
    statements: Sequence[str]
    rows: Sequence[int]
    unwritten: str = ""
    no_rows: str = ""
    shown: str = "*"

    def __str__(self) -> str:
        return self.name

    @property
    def folder(self) -> str:
        """Return the name of its folder in the archive, which is the same in a URI."""
        return self.name.replace(",", "").replace(" ", "-")


def _made(properties: str, *statements: str, columns: str = "n BIGINT, name STRING", tail: str = "") -> list[str]:
    settings = f"TBLPROPERTIES ({properties})" if properties else ""
    return [f"CREATE TABLE {{t}} ({columns}) USING delta {tail} {settings}", *statements]


def _with(settings: dict[str, str], *statements: str) -> list[str]:
    """Return statements between others that make settings and take them back."""
    made = [f"SET {name} = {value}" for name, value in settings.items()]
    return [*made, *statements, *(f"RESET {name}" for name in settings)]


_TYPES = (
    "l BIGINT, i INT, s SMALLINT, b TINYINT, f FLOAT, d DOUBLE, o BOOLEAN, t STRING, r BINARY, y DATE, ts TIMESTAMP, "
    "m DECIMAL(9,2), m2 DECIMAL(18,3), m3 DECIMAL(38,10), st STRUCT<a: INT, b: STRUCT<c: STRING>>, "
    "li ARRAY<STRUCT<x: INT>>, ma MAP<STRING, INT>, vc VARCHAR(5)"
)
_ORDINARY = (
    INSERT + "(1, 2, 3, 4, 0.5, 1e308D, true, 'x', X'00ff', DATE'2024-02-29', TIMESTAMP'2024-02-29 01:02:03.456789', "
    "1.5, 2.125, 3.14, named_struct('a', 1, 'b', named_struct('c', 'z')), array(named_struct('x', 1), NULL), "
    "map('k', 1, 'l', NULL), 'abc')"
)
_EXTREME = (
    INSERT + "(NULL, NULL, NULL, NULL, FLOAT('NaN'), DOUBLE('-Infinity'), NULL, NULL, NULL, DATE'0001-01-01', "
    "TIMESTAMP'1900-01-01 00:00:00.000001', -9999999.99, NULL, -9999999999999999999999999999.9999999999, NULL, "
    "array(), map(), NULL)"
)
_LATE = (
    INSERT + "(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, DATE'9999-12-31', "
    "TIMESTAMP'9999-12-31 23:59:59.999999', NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
)
_STAMPS = "spark.sql.parquet.outputTimestampType"
_KEYS = ["a/b", "a b", "50%", "%41", "x=y", "a:b", "ü→€", '"', "#?&+", "[*]{{}}", "", "__HIVE_DEFAULT_PARTITION__"]
_TYPED = "i INT, d DATE, ts TIMESTAMP, m DECIMAL(10,2), b BOOLEAN, z TIMESTAMP_NTZ, s SMALLINT"
_TYPED_VALUES = (
    "1, DATE'2024-02-29', TIMESTAMP'2024-02-29 01:02:03.456789', -12.30, true, TIMESTAMP_NTZ'2024-02-29 01:02:03', 3"
)
_APPENDS = [INSERT + f"({n}, '{n}')" for n in range(4)]

_WIDER = [
    *("a TYPE BIGINT", "b TYPE DOUBLE", "c TYPE DOUBLE", "d TYPE TIMESTAMP_NTZ", "e TYPE DECIMAL(12, 4)"),
    *("s.x TYPE INT", "l.element TYPE INT"),
]

_VARIANTS = (
    "INSERT INTO {t} SELECT n, IF(n = 0, CAST(j AS VARIANT), parse_json(j)) FROM VALUES (0, NULL), (1, 'null'), "
    """(2, '{{"a": 1, "b": "x", "c": [1.50, {{"d": null}}]}}'), (3, '{{"b": 2, "a": "y"}}'), (4, '[true, "z"]'), """
    """(5, '7'), (6, '"text"') AS t(n, j)"""
)
_JSON = "n, to_json(v) AS v"
_SHRED = {
    "spark.sql.variant.writeShredding.enabled": "true",
    "spark.sql.variant.forceShreddingSchemaForTest": "a INT, b STRING, c ARRAY<VARIANT>",
}

TABLES = [
    Made("every type, INT96", _made("", _ORDINARY, _EXTREME, columns=_TYPES), [0, 1, 2]),
    Made(
        "microseconds, legacy Parquet",
        [
            *_made("", *_with({_STAMPS: "TIMESTAMP_MICROS"}, _ORDINARY, _LATE), columns=_TYPES),
            *_with({_STAMPS: "TIMESTAMP_MILLIS"}, _ORDINARY),
            *_with({"spark.sql.parquet.writeLegacyFormat": "true"}, _ORDINARY),
        ],
        [0, 1, 2, 3, 4],
    ),
    Made(
        "deletion vectors",
        _made(
            "'delta.enableDeletionVectors' = 'true'",
            INSERT + "(1, 'a'), (2, 'b'), (3, NULL), (4, 'd')",
            "DELETE FROM {t} WHERE n = 2",
            "UPDATE {t} SET name = 'z' WHERE n = 3",
            "DELETE FROM {t} WHERE n = 1",
            INSERT + "(9, 'y')",
            "OPTIMIZE {t}",
        ),
        [0, 4, 3, 3, 2, 3, 3],
    ),
    Made(
        "column mapping by name",
        _made(
            "'delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true'",
            INSERT + "(1, 'a b'), (2, 'c/d'), (3, NULL)",
            "ALTER TABLE {t} RENAME COLUMN name TO `the name, (new)`",
            "ALTER TABLE {t} ADD COLUMN (name INT, s STRUCT<a: INT, b: STRING>)",
            INSERT + "(4, 'd', 5, named_struct('a', 1, 'b', 'x'))",
            "ALTER TABLE {t} DROP COLUMN name",
            "ALTER TABLE {t} RENAME COLUMN s.a TO aa",
            "DELETE FROM {t} WHERE n = 1",
            tail="PARTITIONED BY (name)",
        ),
        [0, 3, 3, 3, 4, 4, 4, 3],
    ),
    Made(
        "column mapping by id, nested",
        _made(
            "'delta.columnMapping.mode' = 'id'",
            INSERT + "(1, array(named_struct('x', 1, 'y', 'p'), NULL), map('k', named_struct('q', 2)))",
            "ALTER TABLE {t} RENAME COLUMN a.element.x TO x2",
            "ALTER TABLE {t} DROP COLUMN a.element.y",
            "ALTER TABLE {t} ADD COLUMN m.value.y STRING",
            INSERT + "(2, array(named_struct('x2', 5)), map('k', named_struct('q', 6, 'y', 'new')))",
            columns="n BIGINT, a ARRAY<STRUCT<x: INT, y: STRING>>, m MAP<STRING, STRUCT<q: INT>>",
        ),
        [0, 1, 1, 1, 1, 2],
    ),
    Made(
        "column mapping, added later",
        _made(
            "",
            ROWS,
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', "
            "'delta.minWriterVersion' = '5')",
            "ALTER TABLE {t} RENAME COLUMN name TO label",
            INSERT + "(4, 'd')",
        ),
        [0, 3, 3, 3, 4],
    ),
    Made(
        "change data feed",
        _made("'delta.enableChangeDataFeed' = 'true'", ROWS, "DELETE FROM {t} WHERE n = 2"),
        [0, 3, 2],
    ),
    Made("generated columns", ["INSERT INTO {t} (n) VALUES (1), (2)"], [0, 2], unwritten="generatedColumns"),
    Made("identity columns", ["INSERT INTO {t} (n) VALUES (1), (2)"], [0, 2], unwritten="identityColumns"),
    Made(
        "constraints",
        _made(
            "",
            INSERT + "(1, 'a')",
            "ALTER TABLE {t} ADD CONSTRAINT positive CHECK (n > 0)",
            INSERT + "(2, 'b')",
            columns="n BIGINT NOT NULL, name STRING",
        ),
        [0, 1, 1, 2],
    ),
    Made(
        "constraints as a feature",
        _made("'delta.enableInCommitTimestamps' = 'true'", ROWS, "ALTER TABLE {t} ADD CONSTRAINT c CHECK (n > 0)"),
        [0, 3, 3],
    ),
    Made(
        "liquid clustering",
        _made("", ROWS, INSERT + "(7, 'g')", "OPTIMIZE {t}", tail="CLUSTER BY (n)"),
        [0, 3, 4, 4],
        unwritten="clustering",
    ),
    Made(
        "row tracking",
        _made("'delta.enableRowTracking' = 'true'", ROWS, "UPDATE {t} SET name = 'q' WHERE n = 1"),
        [0, 3, 3],
        unwritten="rowTracking",
    ),
    Made(
        "type widening",
        _made(
            "'delta.enableTypeWidening' = 'true', 'delta.feature.timestampNtz' = 'supported'",
            INSERT + "(1, 2, 1.5, DATE'2024-01-01', 1.25, named_struct('x', 3S), array(4S))",
            *(f"ALTER TABLE {{t}} ALTER COLUMN {change}" for change in _WIDER),
            INSERT + "(5000000000, 2.5, 1e300D, TIMESTAMP_NTZ'2024-01-01 01:02:03', 12345678.1234, "
            "named_struct('x', 70000), array(70000))",
            columns="a SMALLINT, b INT, c FLOAT, d DATE, e DECIMAL(5, 2), s STRUCT<x: SMALLINT>, l ARRAY<SMALLINT>",
        ),
        [0, *[1] * 8, 2],
        unwritten="typeWidening",
    ),
    Made(
        "type widening, preview",
        _made(
            "'delta.feature.typeWidening-preview' = 'supported', 'delta.enableTypeWidening' = 'true'",
            INSERT + "(1, 2)",
            "ALTER TABLE {t} ALTER COLUMN a TYPE SMALLINT",
            "ALTER TABLE {t} ALTER COLUMN b TYPE INT",
            INSERT + "(300, 70000)",
            columns="a TINYINT, b SMALLINT",
        ),
        [0, 1, 1, 1, 2],
        unwritten="typeWidening-preview",
    ),
    Made(
        "fields added to structs in arrays and maps",
        _made(
            "",
            INSERT + "(1, array(named_struct('a', 1)), map('k', named_struct('a', 9)))",
            "ALTER TABLE {t} ADD COLUMN (s.element.b STRING, m.value.b STRING)",
            INSERT + "(2, array(named_struct('a', 2, 'b', 'x')), map('k', named_struct('a', 9, 'b', 'y')))",
            columns="n BIGINT, s ARRAY<STRUCT<a: INT>>, m MAP<STRING, STRUCT<a: INT>>",
        ),
        [0, 1, 1, 2],
    ),
    Made(
        "v2 checkpoints in Parquet",
        _with(
            {"spark.databricks.delta.checkpointV2.topLevelFileFormat": "parquet"},
            *_made(
                "'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2'",
                *_APPENDS,
                "DELETE FROM {t} WHERE n = 1",
            ),
        ),
        [0, 1, 2, 3, 4, 3],
    ),
    Made(
        "v2 checkpoints in JSON",
        _with(
            {
                "spark.databricks.delta.checkpointV2.topLevelFileFormat": "json",
                "spark.databricks.delta.checkpoint.partSize": "2",
            },
            *_made("'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2'", *_APPENDS),
        ),
        [0, 1, 2, 3, 4],
    ),
    Made(
        "checkpoints of several parts",
        _with(
            {"spark.databricks.delta.checkpoint.partSize": "2"}, *_made("'delta.checkpointInterval' = '2'", *_APPENDS)
        ),
        [0, 1, 2, 3, 4],
    ),
    Made("in-commit timestamps", _made("'delta.enableInCommitTimestamps' = 'true'", ROWS), [0, 3]),
    Made(
        "special characters",
        _made(
            "",
            INSERT + ", ".join(f"({n}, '{key}')" for n, key in enumerate(_KEYS)),
            columns="n BIGINT, name STRING",
            tail="PARTITIONED BY (name)",
        ),
        [0, len(_KEYS)],
    ),
    Made(
        "typed partitions",
        [
            *_made(
                "",
                INSERT + f"(1, {_TYPED_VALUES}), (2{', NULL' * 7})",
                columns=f"n BIGINT, {_TYPED}",
                tail="PARTITIONED BY (i, d, ts, m, b, z, s)",
            ),
            *_with(
                {"spark.databricks.delta.write.utcTimestampPartitionValues": "false"}, INSERT + f"(3, {_TYPED_VALUES})"
            ),
        ],
        [0, 2, 3],
    ),
    Made(
        "float and binary partitions",
        _made(
            "",
            INSERT + "(1, 0.1, X'4142', 1.5), (2, NULL, NULL, DOUBLE('NaN'))",
            columns="n BIGINT, f FLOAT, b BINARY, d DOUBLE",
            tail="PARTITIONED BY (f, b, d)",
        ),
        [0, 2],
        no_rows="f is float",
    ),
    Made("variants", _made("", _VARIANTS, columns="n BIGINT, v VARIANT"), [0, 7], "variantType", shown=_JSON),
    Made(
        "variants, preview",
        _made("'delta.feature.variantType-preview' = 'supported'", _VARIANTS, columns="n BIGINT, v VARIANT"),
        [0, 7],
        "variantType-preview",
        shown=_JSON,
    ),
    Made(
        "variants, shredded",
        _made("'delta.enableVariantShredding' = 'true'", *_with(_SHRED, _VARIANTS), columns="n BIGINT, v VARIANT"),
        [0, 7],
        "variantShredding",
        shown=_JSON,
    ),
    Made(
        "column defaults",
        _made(
            "'delta.feature.allowColumnDefaults' = 'supported'",
            "INSERT INTO {t} (n) VALUES (1)",
            columns="n BIGINT, name STRING DEFAULT 'none'",
        ),
        [0, 1],
        unwritten="allowColumnDefaults",
    ),
    Made("append-only", _made("'delta.appendOnly' = 'true'", ROWS), [0, 3]),
    Made(
        "shallow clone",
        [
            "CREATE TABLE {other} (n BIGINT, name STRING) USING delta",
            "INSERT INTO {other} VALUES (1, 'a')",
            "CREATE TABLE {t} SHALLOW CLONE {other}",
            INSERT + "(2, 'b')",
        ],
        [1, 2],
    ),
    Made(
        "replaced and restored",
        [
            *_made("", ROWS, tail="PARTITIONED BY (name)"),
            "CREATE OR REPLACE TABLE {t} USING delta AS SELECT 1 AS other, 'x' AS n",
            "RESTORE TABLE {t} TO VERSION AS OF 1",
            INSERT + "(9, 'z')",
        ],
        [0, 3, 1, 3, 4],
    ),
    Made(
        "a feature dropped",
        _made(
            "'delta.feature.vacuumProtocolCheck' = 'supported'",
            ROWS,
            "ALTER TABLE {t} DROP FEATURE vacuumProtocolCheck",
        ),
        [0, 3, 3, 3, 3, 3],
        unwritten="checkpointProtection",
    ),
    Made(
        "iceberg compatibility",
        _made("'delta.columnMapping.mode' = 'name', 'delta.enableIcebergCompatV2' = 'true'", ROWS),
        [0, 3],
        unwritten="icebergCompatV2",
    ),
]
FEEDS = [
    Made(
        f"change feed, {name}",
        _made(
            "'delta.enableChangeDataFeed' = 'true', 'delta.enableInCommitTimestamps' = 'true', "
            f"'delta.enableDeletionVectors' = '{vectors}'",
            INSERT + "(1, 'a/b'), (2, 'a/b'), (3, NULL), (4, '50%')",
            "DELETE FROM {t} WHERE n = 1",
            "UPDATE {t} SET n = 33 WHERE n = 3",
            "MERGE INTO {t} t USING (SELECT 2 AS n UNION ALL SELECT 5) s ON t.n = s.n "
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (n, name) VALUES (s.n, 'new')",
            "DELETE FROM {t} WHERE name = '50%'",
            tail="PARTITIONED BY (name)",
        ),
        [0, 4, 3, 3, 3, 2],
    )
    for name, vectors in (("rewritten", "false"), ("vectors", "true"))
]
"""Tables whose changes we read as Spark does."""
GENERATED = {"generated columns": ("twice", "n * 2"), "identity columns": ("id", "")}
