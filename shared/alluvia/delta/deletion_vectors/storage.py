"""Deletion vectors in a store, and the positions of rows in a file, also as masks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.clock import Clock
from alluvia.delta.deletion_vectors.descriptors import decode_inline, decode_stored, encode_file, stored_vector
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.fields import Json
from alluvia.errors import Corrupt, ObjectNotFound, Unsupported
from alluvia.store import ByteRange, Store


def numbers(length: int) -> pa.Int64Array:
    """Return 0, 1, … up to a length."""
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), length)), 1)


def positions_of(mask: pa.BooleanArray) -> pa.Int64Array:
    """Return the positions of a mask's rows."""
    return pc.indices_nonzero(mask).cast(pa.int64())


def mask_of(positions: pa.Int64Array, rows: int) -> pa.BooleanArray:
    """Return the mask of some positions, each below `rows`, in a file with so many rows."""
    if not len(positions):
        return pa.repeat(pa.scalar(False, pa.bool_()), rows)
    return pc.inverse_permutation(positions, max_index=rows - 1).is_valid()


def whole(number: int) -> pa.Int64Scalar:
    """Return a number for Arrow, which would load other packages to find its type."""
    return pa.scalar(number, pa.int64())


NO_POSITIONS: pa.Int64Array = pa.array([], pa.int64())


_NONE: Mapping[ByteRange, bytes] = {}


def read_deletions(
    store: Store, file: AddFile, locate: Callable[[str], str], read: Mapping[ByteRange, bytes] = _NONE
) -> pa.Int64Array:
    """Return the positions of a file's deleted rows, ascending; none if it has no deletion vector.

    `locate` gives a path's key in the store (`Snapshot.locate`). `read` has parts of objects that have been read.
    Raises `Corrupt`, naming the data file.
    """
    descriptor = file.deletion_vector
    if descriptor is None:
        return NO_POSITIONS
    try:
        stored = stored_vector(descriptor)
        if stored is None:
            return decode_inline(descriptor)
        part = ByteRange(locate(stored.path), stored.start, stored.end)
        return decode_stored(descriptor, read[part] if part in read else store.get(*part))
    except ObjectNotFound as error:
        raise Corrupt(f"data file {file.path}: its deletion vector file {error} is missing") from error
    except Corrupt as error:
        raise Corrupt(f"data file {file.path}: {error}") from error


def vector_parts(files: Iterable[AddFile], locate: Callable[[str], str]) -> Iterator[ByteRange]:
    """Yield where the vectors of files are stored, as far as their descriptors can be read."""
    for file in files:
        stored = None
        if file.deletion_vector is not None:
            with suppress(Corrupt, Unsupported):  # `read_deletions` says what is wrong, and with which file
                stored = stored_vector(file.deletion_vector)
        if stored is not None:
            yield ByteRange(locate(stored.path), stored.start, stored.end)


def write_deletions(store: Store, root: str, clock: Clock, vectors: Sequence[pa.Int64Array]) -> list[Json]:
    """Write vectors into one new file of the table at `root`; return the descriptor of each, in their order.

    Each vector's positions ascend (`roaring.sorted_positions`). An add that carries one must have the `numRecords` of
    its complete file in its statistics, deleted rows included. Without vectors nothing is written.
    """
    if not vectors:
        return []
    path, data, descriptors = encode_file(vectors, clock.new_id())
    store.put_new(root + path, data)
    return descriptors
