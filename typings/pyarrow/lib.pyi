# Where the stubs of DuckDB look for these.
from pyarrow import RecordBatchReader as RecordBatchReader
from pyarrow import Schema as Schema
from pyarrow import Table as Table
