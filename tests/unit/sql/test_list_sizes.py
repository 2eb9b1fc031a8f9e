"""Columns of lists of one size: `FLOAT[3]` in SQL, an array with a constraint in the table."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import alluvia
from alluvia.access.rights import Rights
from alluvia.errors import Invalid
from alluvia.query.engine import run_rendered
from alluvia.query.formats import FORMATS
from alluvia.sql.run import execute
from tests.access import grant

QUERIES = [
    "SELECT id, array_cosine_similarity(v, [1, 2, 3]::FLOAT[3]) AS s FROM e ORDER BY id",
    "SELECT id FROM e ORDER BY array_distance(v, [9, 8, 7]::FLOAT[3]) NULLS LAST LIMIT 2",
    "SELECT id, list_cosine_similarity(v, [1, 2, 3]) AS s FROM e WHERE v IS NOT NULL ORDER BY id",
    "SELECT id, array_inner_product(v, v) AS p, len(v) AS n, v[1] AS first, v[2:] AS rest FROM e ORDER BY id",
    "SELECT id, unnest(v) AS x FROM e ORDER BY ALL",
    "SELECT typeof(v) AS t, v FROM e ORDER BY id",
    "SELECT a.id, b.id AS other FROM e a JOIN e b ON a.v = b.v ORDER BY ALL",
    "SELECT v, count(*) AS n FROM e GROUP BY v ORDER BY v",
    "SELECT list_transform(v, lambda x: x + 1) AS l, v::FLOAT[] AS plain FROM e ORDER BY id",
    "SELECT id FROM e WHERE v = [4, 5, 6]::FLOAT[3]",
]


@pytest.fixture
def lake(lake: alluvia.Lake) -> alluvia.Lake:
    """A lake with a table `e` of four embeddings, of which one is null."""
    lake.sql("CREATE TABLE e (id INT, v FLOAT[3])")
    lake.sql("INSERT INTO e VALUES (1, [1, 2, 3]), (2, [0.1, 0.2, 0.3]), (3, NULL)")
    lake.sql("INSERT INTO e VALUES (4, $v)", {"v": [4, 5, 6]})
    return lake


@pytest.mark.parametrize("query", QUERIES)
def test_queries_answer_as_duckdb_does(lake: alluvia.Lake, query: str) -> None:
    judge = duckdb.connect()
    judge.execute("CREATE TABLE e (id INT, v FLOAT[3])")
    judge.execute("INSERT INTO e VALUES (1, [1, 2, 3]), (2, [0.1, 0.2, 0.3]), (3, NULL), (4, [4, 5, 6])")
    expected, answer = judge.execute(query).to_arrow_table(), lake.sql(query)
    assert answer.schema.names == expected.schema.names
    assert answer.schema.types == expected.schema.types
    assert answer.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO e VALUES (5, [1, 2])",
        "INSERT INTO e SELECT 5, [1, 2, 3, 4]",
        "INSERT INTO e VALUES (5, [])",
        "UPDATE e SET v = [1] WHERE id = 1",
        "UPDATE e SET v = (SELECT [1]) WHERE id = 1",
        "MERGE INTO e USING (VALUES (1, [1])) AS s(id, v) USING (id) WHEN MATCHED THEN UPDATE SET v = s.v",
    ],
)
def test_a_list_of_another_size_is_refused(lake: alluvia.Lake, text: str) -> None:
    with pytest.raises(Invalid, match="break the CHECK constraint v_size"):
        lake.sql(text)
    assert lake.sql("SELECT count(*) AS n FROM e")["n"].to_pylist() == [4]


def test_rows_change_like_others(lake: alluvia.Lake) -> None:
    lake.sql("UPDATE e SET v = [7, 7, 7] WHERE id = 3")
    lake.sql("UPDATE e SET v = (SELECT v FROM e WHERE id = 3) WHERE id = 2")
    lake.sql("DELETE FROM e WHERE list_cosine_similarity(v, [7, 7, 7]) > 0.999 AND id = 3")
    lake.sql("DELETE FROM e WHERE id IN (SELECT id FROM e WHERE array_distance(v, [4, 5, 6]::FLOAT[3]) = 0)")
    lake.sql("MERGE INTO e USING (VALUES (1, [9, 9, 9])) AS s(id, v) USING (id) WHEN MATCHED THEN UPDATE SET v = s.v")
    assert lake.sql("SELECT * FROM e ORDER BY id").to_pylist() == [
        {"id": 1, "v": [9.0, 9.0, 9.0]},
        {"id": 2, "v": [7.0, 7.0, 7.0]},
    ]


def test_a_table_made_of_a_query_or_of_its_statement_has_the_sizes(lake: alluvia.Lake) -> None:
    lake.sql("CREATE TABLE copied AS SELECT v FROM e")
    (statement,) = lake.sql("SHOW CREATE TABLE e")["create_statement"].to_pylist()
    assert statement == 'CREATE TABLE e (\n  "id" INTEGER,\n  "v" FLOAT[3]\n)'
    lake.sql(statement.replace("TABLE e", "TABLE again"))
    for name in ("copied", "again"):
        with pytest.raises(Invalid, match="v_size"):
            lake.sql(f"INSERT INTO {name} (v) VALUES ([1])")


def test_all_forms_of_results_have_them(lake: alluvia.Lake) -> None:
    for form in FORMATS:
        assert run_rendered(lake.catalog, "SELECT v FROM e", form, 1 << 20).rows == 4


def test_filters_of_a_token_apply(lake: alluvia.Lake) -> None:
    rights = Rights((grant("read:e", where="id < 3"),))
    query = "SELECT id FROM e WHERE array_distance(v, v) = 0 ORDER BY id"
    assert execute(lake, query, rights=rights)["id"].to_pylist() == [1, 2]


def test_other_readers_see_an_array(tmp_path: object) -> None:
    lake = alluvia.connect(str(tmp_path))
    lake.sql("CREATE TABLE e (v FLOAT[2]); INSERT INTO e VALUES ([1, 2]), (NULL)")
    assert lake["e"].to_arrow()["v"].type == pa.list_(pa.field("element", pa.float32()))
    assert pa.table(DeltaTable(f"{tmp_path}/e").to_pyarrow_table())["v"].to_pylist() == [[1.0, 2.0], None]
