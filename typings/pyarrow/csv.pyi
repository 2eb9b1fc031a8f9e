from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, NamedTuple

from pyarrow import BufferReader, DataType, RecordBatch, Schema, Table

class InvalidRow(NamedTuple):
    expected_columns: int
    actual_columns: int
    number: int
    text: str

class ReadOptions:
    def __init__(
        self, *, use_threads: bool = True, column_names: Sequence[str] | None = None, block_size: int | None = None
    ) -> None: ...

class ParseOptions:
    def __init__(
        self,
        *,
        delimiter: str = ",",
        quote_char: str | bool = '"',
        double_quote: bool = True,
        newlines_in_values: bool = False,
        ignore_empty_lines: bool = True,
        invalid_row_handler: Callable[[InvalidRow], str] | None = None,
    ) -> None: ...

class ConvertOptions:
    def __init__(
        self,
        *,
        column_types: Schema | Mapping[str, DataType],
        check_utf8: bool = True,
        include_columns: Sequence[str] | None = None,
        null_values: Sequence[str] | None = None,
        strings_can_be_null: bool = False,
        quoted_strings_can_be_null: bool = True,
    ) -> None: ...

class CSVStreamingReader:
    def __iter__(self) -> Iterator[RecordBatch]: ...

def read_csv(
    input_file: BufferReader,
    read_options: ReadOptions | None = None,
    parse_options: ParseOptions | None = None,
    convert_options: ConvertOptions | None = None,
) -> Table: ...
def open_csv(
    input_file: IO[bytes],
    *,
    read_options: ReadOptions | None = None,
    parse_options: ParseOptions | None = None,
    convert_options: ConvertOptions | None = None,
) -> CSVStreamingReader: ...
