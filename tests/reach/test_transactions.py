"""Other readers see of a transaction what is in each table's log: nothing of its claims, all that was carried out."""

from __future__ import annotations

from pathlib import Path

import pytest

import alluvia
from alluvia.api.lake import Lake
from tests.judges import READERS, Read
from tests.reach.delta_spark import BY_SPARK
from tests.transactions import (
    APPLY_OF_A,
    APPLY_OF_B,
    CLAIM_OF_A,
    CLAIM_OF_B,
    DECISION,
    NAMES,
    again,
    amounts,
    stopped,
    transfer,
    two_tables,
)

MOMENTS = {
    CLAIM_OF_A: (200, 200),
    CLAIM_OF_B: (200, 200),
    DECISION: (200, 200),
    APPLY_OF_A: (200, 200),
    APPLY_OF_B: (190, 200),
}
"""What other readers see of a transaction that has stopped before a conditional write."""
Seen = list[tuple[Lake, tuple[int, int]]]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """Lakes before, during and after a transaction, with what other readers see of them, by the kind of checkpoint.

    Checkpoints were written while the claims stand.
    """
    return {policy: _made(tmp_path_factory.mktemp(policy), policy) for policy in ("classic", "v2")}


def _made(folder: Path, policy: str) -> Seen:
    def new() -> Lake:
        return two_tables(properties={"delta.checkpointPolicy": policy})

    def kept(lake: Lake) -> Lake:
        place = folder / str(len(list(folder.iterdir())))
        for info in lake.store.list(""):
            path = place / info.key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(lake.store.get(info.key))
        return alluvia.connect(str(place))

    lake = new()
    found = [(kept(lake), (200, 200))]
    transfer(lake)
    found.append((kept(lake), (190, 210)))
    for moment, wanted in MOMENTS.items():
        lake = new()
        stopped(lake, moment)
        for name in NAMES:
            again(lake).table(name).checkpoint()
        happened = (190, 210) if moment > DECISION else (200, 200)
        assert amounts(again(lake)) == happened
        found.append((kept(lake), wanted))
        for name in NAMES:
            again(lake).table(name).update({"amount": "amount"}, "id = 'y'")
        found.append((kept(lake), happened))
    return found


@pytest.mark.parametrize("policy", ["classic", "v2"])
@pytest.mark.parametrize("reader", [*READERS, pytest.param("delta-spark", marks=BY_SPARK)])
def test_before_during_and_after(
    request: pytest.FixtureRequest, reader: str, policy: str, places: dict[str, Seen]
) -> None:
    read: Read = READERS[reader] if reader in READERS else request.getfixturevalue("delta_spark").read
    chosen = places[policy] if reader in READERS else places[policy][-2:]  # Spark takes a second for each
    for lake, wanted in chosen:
        tables = [lake.table(name) for name in NAMES]
        if (reader, policy) == ("deltalake", "v2"):
            with pytest.raises(Exception, match="v2Checkpoint"):
                read(tables[0])
            continue
        assert tuple(sum(read(table)["amount"].to_pylist()) for table in tables) == wanted, lake.uri
