from pyarrow import BufferReader, Schema, Table

class ParseOptions:
    def __init__(
        self,
        explicit_schema: Schema | None = None,
        newlines_in_values: bool | None = None,
        unexpected_field_behavior: str | None = None,
    ) -> None: ...

class ReadOptions:
    def __init__(self, use_threads: bool | None = None, block_size: int | None = None) -> None: ...

def read_json(
    input_file: BufferReader, read_options: ReadOptions | None = None, parse_options: ParseOptions | None = None
) -> Table: ...
