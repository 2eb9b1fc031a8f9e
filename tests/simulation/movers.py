"""Actors that use the bank, the purse and the vault together."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.simulation.transfers import (
    append_both,
    chance_of,
    count_pairs,
    count_up,
    hand_on,
    only_read,
    raise_flag,
    raise_flag_by_subquery,
    read_both,
    read_late,
    transfer,
    use_vault,
)
from tests.simulation.world import Actor, World

ACTS: tuple[tuple[str, Callable[[Actor], None]], ...] = (
    ("mover", transfer),
    ("mover", hand_on),
    ("mover", hand_on),
    ("counter", count_up),
    ("flagger", raise_flag),
    ("flagger", raise_flag),
    ("flagger", raise_flag_by_subquery),
    ("flagger", raise_flag_by_subquery),
    ("pairer", append_both),
    ("looker", read_both),
    ("looker", only_read),
    ("looker", read_late),
    ("looker", read_late),
    ("teller", count_pairs),
    ("teller", count_pairs),
    ("vaulter", use_vault),
    ("vaulter", use_vault),
)

TOGETHER = frozenset(act for _, act in ACTS) - {use_vault}


def movers(world: World) -> Iterator[tuple[str, Callable[[Actor], None]]]:
    """Yield the names of those who use both tables, and what they do."""
    chance = chance_of(world)
    chance.random()
    for at in range(chance.choice([3, 4, 4, 5])):
        name, act = chance.choice(ACTS)
        yield f"{name}{at}", act
