"""Makes `variant_tables.tar.gz`: tables with variants, and the rows of their last version, variants as Spark's JSON.

`python -m tests.golden.variant_tables` (Spark and delta-spark are fetched as the tests in `tests/reach` do).
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from tests.golden.spark_tables import pack
from tests.reach.delta_spark import DeltaSpark, running_delta_spark

ARCHIVE = Path(__file__).parent / "variant_tables.tar.gz"
VALUES = (
    "CAST(NULL AS VARIANT)",
    "parse_json('null')",
    "parse_json('[]')",
    "parse_json('{}')",
    """parse_json('{"a": 1, "b": "x", "c": [1, {"d": null}], "e": {}}')""",
    """parse_json('{"a": "text", "z": 1.50, "b": "y", "c": 3, "Ä": "ü\\\\u2028"}')""",
    """parse_json('{"a": 7, "c": []}')""",
    """parse_json('{"e": {"a": [[[{"b": [0]}]]]}, "b": null}')""",
    """parse_json('[1, "two", [3.25], {"a": -1}]')""",
    "CAST(repeat('long ', 40) AS VARIANT)",
    "CAST(X'00ff' AS VARIANT)",
    "CAST(DATE'2020-01-02' AS VARIANT)",
    "CAST(TIMESTAMP'2020-01-02 03:04:05.123' AS VARIANT)",
    "CAST(TIMESTAMP'1969-12-31 23:59:59.999999' AS VARIANT)",
    "CAST(TIMESTAMP_NTZ'2020-01-02 03:04:05' AS VARIANT)",
    *(f"CAST({number} AS VARIANT)" for number in ("1.5F", "0.1F", "1e300D", "-0.1D", "1e10D", "1Y", "-300S", "70000")),
    *(f"CAST({number} AS VARIANT)" for number in ("-9223372036854775808", "1.50BD", "12345678901.250BD", "-0.05BD")),
    "CAST(12345678901234567890123456789012.345600BD AS VARIANT)",
    *(f"CAST({value} AS VARIANT)" for value in ("DOUBLE('NaN')", "FLOAT('-Infinity')", "true", "false", "'short'")),
)
_ROWS = " UNION ALL ".join(f"SELECT {at}L AS n, {value} AS v" for at, value in enumerate(VALUES))
ROWS = f"SELECT /*+ COALESCE(2) */ * FROM ({_ROWS})"
WRITING = {"spark.sql.variant.writeShredding.enabled": "true"}


@dataclass(frozen=True, slots=True)
class Case:
    """Statements that make a table, and what to select of it for its rows. `shredding` are columns of its variants."""

    statements: Sequence[str]
    shown: str = "n, to_json(v) AS v"
    shredding: str = ""


def _case(columns: str, properties: str, *statements: str, tail: str = "", **more: str) -> Case:
    return Case(
        [f"CREATE TABLE {{t}} ({columns}) USING delta {tail} TBLPROPERTIES ({properties})", *statements], **more
    )


SHREDDED = "'delta.enableVariantShredding' = 'true'"
CASES = {
    "plain": Case([f"CREATE TABLE {{t}} USING delta AS {ROWS}"]),
    "preview": _case(
        "n BIGINT, v VARIANT", "'delta.feature.variantType-preview' = 'supported'", f"INSERT INTO {{t}} {ROWS}"
    ),
    "nested": _case(
        "n BIGINT, s STRUCT<v: VARIANT, w: INT>, l ARRAY<VARIANT>, m MAP<STRING, VARIANT>",
        "'some' = 'value'",
        f"INSERT INTO {{t}} SELECT n, named_struct('v', v, 'w', 1), array(v, NULL, v), map('k', v) FROM ({ROWS})",
        "INSERT INTO {t} VALUES (99, NULL, NULL, NULL), (98, NULL, array(), map())",
        shown="n, IF(s IS NULL, NULL, named_struct('v', to_json(s.v), 'w', s.w)) AS s, "
        "transform(l, x -> to_json(x)) AS l, transform_values(m, (k, x) -> to_json(x)) AS m",
    ),
    "shredded object": _case(
        "n BIGINT, v VARIANT",
        SHREDDED,
        f"INSERT INTO {{t}} {ROWS}",
        shredding="a INT, b STRING, c ARRAY<VARIANT>, e STRUCT<a: ARRAY<ARRAY<VARIANT>>>",
    ),
    **{
        f"shredded {kind}": _case("n BIGINT, v VARIANT", SHREDDED, f"INSERT INTO {{t}} {ROWS}", shredding=kind)
        for kind in ("BIGINT", "DECIMAL(12, 3)", "STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "DOUBLE")
    },
    **{
        f"shredded {kind}": _case("n BIGINT, v VARIANT", SHREDDED, f"INSERT INTO {{t}} {ROWS}", shredding=kind)
        for kind in ("FLOAT", "BOOLEAN", "ARRAY<BIGINT>", "ARRAY<STRUCT<a: INT>>")
    },
    "mapped": _case(
        "n BIGINT, v VARIANT, p INT",
        "'delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true', 'delta.checkpointInterval' = '3'",
        f"INSERT INTO {{t}} SELECT n, v, n % 2 FROM ({ROWS})",
        "ALTER TABLE {t} RENAME COLUMN v TO w",
        "DELETE FROM {t} WHERE n IN (4, 7, 8)",
        "INSERT INTO {t} VALUES (100, parse_json('{\"late\": true}'), 0)",
        tail="PARTITIONED BY (p)",
        shown="n, to_json(w) AS w, p",
    ),
}


def make(spark: DeltaSpark, folder: Path) -> None:
    """Make all tables below a folder: `<name>/delta`, and `<name>/expected/rows.parquet`."""
    # The vectorised reader takes no variants beside a deletion vector.
    spark.run("SET spark.sql.parquet.enableVectorizedReader = false")
    for name, case in CASES.items():
        table = f"delta.`{folder / name / 'delta'}`"
        settings = WRITING | {"spark.sql.variant.forceShreddingSchemaForTest": case.shredding} if case.shredding else {}
        create, *others = (statement.replace("{t}", table) for statement in case.statements)
        spark.run(create, *(f"SET {key} = {value}" for key, value in settings.items()), *others)
        spark.run(*(f"RESET {key}" for key in settings))
        (folder / name / "expected").mkdir()
        pq.write_table(spark.query(f"SELECT {case.shown} FROM {table}"), folder / name / "expected" / "rows.parquet")


if __name__ == "__main__":
    with running_delta_spark() as running, tempfile.TemporaryDirectory(prefix="alluvia-golden-") as work:
        make(running, Path(work))
        pack(Path(work), ARCHIVE)
