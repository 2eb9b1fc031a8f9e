"""Choose the parts of a query's data files that are fetched before it runs. Pure.

DuckDB opens file after file, and reads of each a footer and then what the query needs. Of a small file, one GET brings
all. The footers of large ones are fetched ahead, many at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from alluvia.delta.schema.names import places_by_name
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.queries.parse import Node, walk
from alluvia.operations.reading.relations import Files, Inputs
from alluvia.store.base import ByteRange
from alluvia.store.caches.file_cache import RemoteFile
from alluvia.store.caches.served import WantedColumns

SMALL_BYTES = 4 << 20
"""A larger file is left to DuckDB."""
EARLY_FILES = 64
"""So many files are fetched for a query that may end before it has read all."""


TAIL_BYTES = 64 << 10
"""The last bytes of a large file, in which its footer is nearly always."""
TAILS_AT_ONCE = 512
TAILS_BYTES = 128 << 20
"""The most bytes of the ends of its files that a query holds; DuckDB reads those of further files itself."""


def first_read(size: int) -> int:
    """Return how many of a file's last bytes DuckDB reads first, whatever the length of the footer.

    Of fewer bytes that are known, it would get none.
    """
    return min(max(16 << 10, 1 << (size // 1000 - 1).bit_length()), 256 << 10, size)


def tail_of(key: str, size: int) -> ByteRange:
    """Return which part of an object is fetched for its footer."""
    return ByteRange(key, size - min(size, max(TAIL_BYTES, first_read(size))), size)


def footer(tail: bytes, size: int) -> bytes:
    """Return what DuckDB reads of a file's last bytes to open it: the footer and its length, or all it reads first."""
    length = int.from_bytes(tail[-8:-4], "little") + 8
    return tail[-max(length, first_read(size)) :]


def small_files(inputs: Inputs, copied: Callable[[str], bool]) -> Iterator[RemoteFile]:
    """Yield the small files of a query, those left out that are copied for DuckDB in any case."""
    for source in inputs.values():
        if not isinstance(source, Files) or source.paths or _is_copied(source.snapshot):
            continue
        for file in source.files:
            if file.size <= SMALL_BYTES and not copied(file.path):
                yield RemoteFile(source.snapshot.key(file), file.size, file.modification_time)


def wanted_columns(inputs: Inputs) -> dict[str, WantedColumns]:
    """Return the columns that a query can mean of each of its inputs, where that is known.

    A name that two of them have may be meant of one alone.
    """
    sources = {name: source for name, source in inputs.items() if isinstance(source, Files)}
    places = {name: places_by_name(source.snapshot.schema) for name, source in sources.items()}
    found = {}
    for name, source in sources.items():
        if source.named is not None and source.results is not None:
            having = {each: [at for one in places.values() for at in one.get(each, ())] for each in source.named}
            own = [each for each in sorted(source.named) if len(having[each]) == 1 and each in places[name]]
            physical = source.snapshot.physical_schema
            names = {each: str(physical.field(having[each][0]).name) for each in own}
            results = tuple(names[each] for each in source.results if each in names)
            found[name] = WantedColumns(tuple(names.values()), results)
    return found


def _is_copied(snapshot: Snapshot) -> bool:
    """Whether DuckDB gets copies of all files."""
    return snapshot.has_variants and snapshot.variant is None


def asks_no_rows(root: Node) -> bool:
    """Whether a query asks for columns alone, as tools do before they read: it ends with LIMIT 0, or is a DESCRIBE."""
    if (root.get("from_table") or {}).get("show_type") == "DESCRIBE":
        return True
    limits = [each["limit"] for each in root.get("modifiers") or () if each["type"] == "LIMIT_MODIFIER"]
    return any((each or {}).get("class") == "CONSTANT" and each["value"].get("value") == 0 for each in limits)


def may_end_early(root: Node) -> bool:
    """Whether a query may have all of its rows before it has read all files: a LIMIT in it is not on sorted rows."""
    kinds = [{each["type"] for each in node["modifiers"]} for node in walk(root) if node.get("modifiers")]
    return any("LIMIT_MODIFIER" in each and "ORDER_MODIFIER" not in each for each in kinds)
