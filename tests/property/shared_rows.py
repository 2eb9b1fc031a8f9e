"""Computes the relations of pipelines share by share, as Spark's tasks do, in this process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from alluvia.engine.duck.literals import quote_name
from alluvia.operations.reading.relations import Evaluate, Files, InputSplit, LocalRows, Relation, Split, Take
from alluvia.pipelines.computing import view
from alluvia.pipelines.execution import RowOutput
from alluvia.pipelines.sorting_rows import JudgedRows

T = TypeVar("T")
SHARES = 3


class SharedRows:
    """An execution that shares the rows out by their values; rows that need not stay together by their places."""

    def __init__(self, evaluate: Evaluate) -> None:
        self.evaluate = evaluate
        self.shared = 0

    def rows(self, relation: Relation, split: Split, take: Take[T]) -> T:
        with tempfile.TemporaryDirectory() as folder:
            found = [self.evaluate(each, _table) for each in self._shares(relation, split, Path(folder))]
        return take(found[0].schema, iter(pa.concat_tables(found).to_batches()))

    def written(self, relation: Relation, split: Split, output: RowOutput) -> JudgedRows:
        done = JudgedRows(failed={each.name: 0 for each in output.declaration.expectations})
        with tempfile.TemporaryDirectory() as folder:
            for each in self._shares(relation, split, Path(folder)):
                done.add(self.evaluate(each, output.writing()))
        return done

    def _shares(self, relation: Relation, split: Split, folder: Path) -> Iterator[Relation]:
        if split is None:
            yield relation
            return
        self.shared += 1
        rows = {name: self._numbered(name, read, split[name]) for name, read in relation.inputs.items()}
        for share in range(SHARES):
            inputs: dict[str, Files | LocalRows] = {}
            for name, table in rows.items():
                own = table.filter(pc.equal(table.column(table.num_columns - 1), share)).select(split[name].columns)
                path = folder / f"{name}-{share}.parquet"
                pq.write_table(own, path, store_schema=False)
                inputs[name] = LocalRows(path, own.schema)
            yield Relation(inputs, relation.views)

    def _numbered(self, name: str, read: Files | LocalRows, split: InputSplit) -> pa.Table:
        """Return the rows of an input, and last the share of each."""
        listed = ", ".join(map(quote_name, split.columns))
        number = f"hash({', '.join(split.values)})" if split.values else "row_number() OVER ()"
        text = f"SELECT {listed}, CAST({number} % {SHARES} AS INTEGER) AS share FROM {view(name)}"
        found = self.evaluate(Relation({name: read}, {"shares": text}), _table)
        schema = read.snapshot.schema if isinstance(read, Files) else read.schema
        fields = [schema.field(column).with_nullable(True) for column in split.columns]
        return found.cast(pa.schema([*fields, pa.field("share", pa.int32())]))


def _table(columns: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(list(batches), columns)
