from pyarrow import Table
from pyarrow.compute import Expression

class Dataset:
    def to_table(self, columns: list[str] | None = None, filter: Expression | None = None) -> Table: ...

def dataset(source: object, *, format: str | None = None, partitioning: object = None) -> Dataset: ...
