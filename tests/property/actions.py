"""Hypothesis strategies for the actions of a log, and for histories of commits."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from alluvia.delta.log.actions import AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from alluvia.delta.log.commit import CommitActions

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
LONG = st.integers(-(2**63) + 1, 2**63 - 1)
SIZE = st.integers(0, 2**62)
TEXTS = st.dictionaries(NAME, TEXT, max_size=3)
VALUES = st.dictionaries(NAME, st.none() | TEXT, max_size=3)
PATHS = st.text(st.sampled_from([*string.ascii_letters, *"%25 /+#?&=é漢🌊'\"[]:.~-_"]), min_size=1, max_size=24)
VECTORS = st.none() | st.fixed_dictionaries(
    {
        "storageType": st.sampled_from(["u", "i", "p"]),
        "pathOrInlineDv": st.text("abc123", min_size=1, max_size=5),
        "sizeInBytes": st.integers(0, 100),
        "cardinality": st.integers(0, 100),
    },
    optional={"offset": st.integers(0, 100)},
)

ADDS = st.builds(
    AddFile,
    path=PATHS,
    partition_values=VALUES,
    size=SIZE,
    modification_time=LONG,
    data_change=st.booleans(),
    stats=st.none() | TEXT,
    tags=TEXTS,
    deletion_vector=VECTORS,
)


def _remove(path: str, time: int, change: bool, known: tuple[dict[str, Any], int] | None, vector: Any) -> RemoveFile:
    values, size = known if known is not None else (None, None)
    return RemoveFile(path, time, change, values, size, vector)


REMOVES = st.builds(_remove, PATHS, LONG, st.booleans(), st.none() | st.tuples(VALUES, SIZE), VECTORS)
TXNS = st.builds(Txn, NAME, LONG, st.none() | LONG)
DOMAINS = st.builds(DomainMetadata, NAME, TEXT, st.booleans())
FEATURES = st.none() | st.lists(NAME, max_size=3).map(tuple)
PROTOCOLS = st.builds(Protocol, st.integers(1, 3), st.integers(1, 7), FEATURES, FEATURES)
METADATA = st.builds(
    Metadata,
    id=NAME,
    schema_string=NAME,
    partition_columns=st.lists(NAME, max_size=3).map(tuple),
    configuration=TEXTS,
    created_time=st.none() | LONG,
    name=st.none() | TEXT,
    description=st.none() | TEXT,
)


@st.composite
def histories(draw: st.DrawFn, commits_max: int = 8) -> list[CommitActions]:
    """Draw commits from version 0 on, in which files come, go, and come again; removes also of what never was."""
    names = draw(st.lists(PATHS, min_size=1, max_size=6, unique=True))
    found = []
    for version in range(draw(st.integers(1, commits_max))):
        first = version == 0
        paths = draw(st.lists(st.sampled_from(names), max_size=4, unique=True))
        going = draw(st.lists(st.sampled_from(names), max_size=3, unique=True))
        found.append(
            CommitActions(
                version,
                {"inCommitTimestamp": 1000 + version},
                draw(PROTOCOLS if first else st.none() | PROTOCOLS),
                draw(METADATA if first else st.none() | METADATA),
                _unique(draw(st.lists(TXNS, max_size=2)), "app_id"),
                _unique(draw(st.lists(DOMAINS, max_size=2)), "domain"),
                [draw(_at(ADDS, path)) for path in paths],
                [draw(_at(REMOVES, path)) for path in going],
            )
        )
    return found


def _at(actions: st.SearchStrategy[Any], path: str) -> st.SearchStrategy[Any]:
    from dataclasses import replace

    return actions.map(lambda action: replace(action, path=path))


def _unique(actions: Sequence[Any], key: str) -> list[Any]:
    return list({getattr(action, key): action for action in actions}.values())
