from pyarrow import BufferReader, Schema, Table

class ConvertOptions:
    def __init__(
        self, *, column_types: Schema, strings_can_be_null: bool = False, quoted_strings_can_be_null: bool = True
    ) -> None: ...

def read_csv(input_file: BufferReader, *, convert_options: ConvertOptions | None = None) -> Table: ...
