"""Data frames to a lake and from it, for a process that has pandas and polars, as those of tests have not."""

from __future__ import annotations

from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa


def check(con: Any) -> None:
    events = con.table("purchases").order_by("id")
    frame = events.execute()
    assert [str(kind) for kind in frame.dtypes] == ["int64", "datetime64[us, UTC]", "object", "float64"]
    assert frame["id"].tolist() == list(range(10))
    assert events.country.nunique().execute() == 2
    assert events.country.execute().tolist() == ["fr", "de"] * 5
    assert [len(batch) for batch in events.to_pandas_batches(chunk_size=4)] == [4, 4, 2]
    assert events.to_polars()["at"].dtype == pl.Datetime("us", "UTC")
    wide = events.pivot_wider(id_cols=[], names_from="country", values_from="amount", values_agg="max", names_sort=True)
    assert wide.to_pyarrow().to_pylist() == [{"de": 4.5, "fr": 8.0}]
    moment = pd.Timestamp("2026-11-20 12:00:00.000001")  # which pandas holds in nanoseconds
    made = con.create_table("framed", pd.DataFrame({"n": [1, 2], "at": [moment, pd.NaT], "x": [0.5, None]}))
    assert made.order_by("n").to_pyarrow().to_pylist()[1] == {"n": 2, "at": None, "x": None}
    con.insert("framed", pl.DataFrame({"n": [3], "x": [1.5]}))
    con.upsert("framed", pd.DataFrame({"n": [3], "x": [2.5], "at": [moment]}), on="n")
    rows = made.filter(made.n != 2).order_by("n").select("n", "at", "x").to_pyarrow()
    assert rows.schema.field("at").type == pa.timestamp("us")
    assert rows.to_pydict() == {"n": [1, 3], "at": [moment.to_pydatetime()] * 2, "x": [0.5, 2.5]}
    con.drop_table("framed")
