from __future__ import annotations

import pytest

from alluvia.delta.partitioning.values import is_hidden, partition_texts


@pytest.mark.parametrize(
    ("path", "hidden"),
    [
        ("a.parquet", False),
        ("p=1/a.parquet", False),
        ("_p=1/a_b.parquet", False),
        ("_a", True),
        (".a", True),
        ("p=1/_a", True),
        ("p=1/.a.crc", True),
        ("_delta_log/0.json", True),
        (".p=1/a", True),
        ("_rejects/day=1/a", True),
    ],
)
def test_hidden_names(path: str, hidden: bool) -> None:
    assert is_hidden(path) is hidden


@pytest.mark.parametrize(
    ("path", "texts"),
    [
        ("a=1/f=2", {"a": "1"}),
        ("x/a=1/y/b=2/f", {"a": "1", "b": "2"}),
        ("a%20b=c%3Dd=e/f", {"a b": "c=d=e"}),
        ("a=%2525/f", {"a": "%25"}),
        ("a=/b=__HIVE_DEFAULT_PARTITION__/f", {"a": None, "b": None}),
        ("=1/f", {}),
        ("f", {}),
    ],
)
def test_partition_columns_of_a_path(path: str, texts: dict[str, str | None]) -> None:
    assert partition_texts(path) == texts
    assert list(partition_texts(path)) == list(texts)
