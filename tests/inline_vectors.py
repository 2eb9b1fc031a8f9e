"""Deletion vectors inside their descriptors: other writers make them, and this library only reads them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pyarrow as pa

from alluvia.delta.deletion_vectors.descriptors import encode_file, encode_z85


def inline_vector(*positions: int) -> dict[str, Any]:
    """Return the descriptor of a vector with some positions, which ascend."""
    _, file, [stored] = encode_file([pa.array(positions, pa.int64())], str(UUID(int=0)))
    start = stored["offset"] + 4
    data = file[start : start + stored["sizeInBytes"]]
    return {
        "storageType": "i",
        "pathOrInlineDv": encode_z85(data),
        "sizeInBytes": len(data),
        "cardinality": len(positions),
    }
