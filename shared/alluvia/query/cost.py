"""What a query costs before it runs: requests for data files, and dollars on AWS. Pure.

An estimate for a query that finds no copies of files. It leaves out the requests for the tables' logs, and the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from alluvia.delta.deletion_vectors.descriptors import stored_vector
from alluvia.delta.log.actions import AddFile
from alluvia.prices import GET_DOLLARS, LAMBDA_GB_SECOND_DOLLARS
from alluvia.query.process.fetching import SMALL_BYTES

STEP_BYTES = 8 << 20
"""DuckDB takes a large file in pieces of about this size: the columns of a row group."""
FUNCTION_GB = 3.5
"""The memory of the query function in the stack."""
READ_BYTES_A_SECOND = 75_000_000
"""What Lambda's network brings a function for long, and less than DuckDB decodes."""


def file_requests(size: int) -> int:
    """Return how many requests a data file of `size` bytes takes: one, or one for the footer and the pieces."""
    return 1 if size <= SMALL_BYTES else 1 + ceil(size / STEP_BYTES)


def requests_of(files: Sequence[AddFile]) -> int:
    """Return how many requests data files take, and the files that have their deletion vectors."""
    vectors = (stored_vector(file.deletion_vector) for file in files if file.deletion_vector)
    return sum(file_requests(file.size) for file in files) + len({vector.path for vector in vectors if vector})


def dollars(requests: int, size: int) -> float:
    """Return the price of requests to S3, and of a function's time while it reads `size` bytes."""
    return requests * GET_DOLLARS + size / READ_BYTES_A_SECOND * FUNCTION_GB * LAMBDA_GB_SECOND_DOLLARS
