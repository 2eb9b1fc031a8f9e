from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from pyarrow import BufferReader, DataType, RecordBatch, Schema, Table

class ReadOptions:
    def __init__(
        self, *, use_threads: bool = True, column_names: Sequence[str] | None = None, block_size: int | None = None
    ) -> None: ...

class ParseOptions:
    def __init__(self, *, delimiter: str = ",", newlines_in_values: bool = False) -> None: ...

class ConvertOptions:
    def __init__(
        self,
        *,
        column_types: Schema | Mapping[str, DataType],
        null_values: Sequence[str] | None = None,
        strings_can_be_null: bool = False,
        quoted_strings_can_be_null: bool = True,
    ) -> None: ...

class CSVStreamingReader:
    def __iter__(self) -> Iterator[RecordBatch]: ...

def read_csv(input_file: BufferReader, *, convert_options: ConvertOptions | None = None) -> Table: ...
def open_csv(
    input_file: IO[bytes],
    *,
    read_options: ReadOptions | None = None,
    parse_options: ParseOptions | None = None,
    convert_options: ConvertOptions | None = None,
) -> CSVStreamingReader: ...
