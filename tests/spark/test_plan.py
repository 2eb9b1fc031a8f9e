from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from alluvia_spark.plan import (
    BUCKET_BYTES_MAX,
    BUCKET_BYTES_MIN,
    Group,
    Plan,
    Share,
    bucket_bytes,
    plan_shares,
    spread_tables,
)


def test_small_neighbours_share_a_task_and_a_big_partition_has_several() -> None:
    sizes = {Group(0, "a"): 40, Group(0, "b"): 40, Group(0, "c"): 310, Group(0, "d"): 10, Group(1, ""): 95}
    assert plan_shares(sizes, 100) == Plan(
        {
            Group(0, "a"): Share(0, 1),
            Group(0, "b"): Share(0, 1),
            Group(0, "c"): Share(1, 3),
            Group(0, "d"): Share(4, 1),
            Group(1, ""): Share(5, 1),
        },
        tasks=6,
    )


def test_a_partition_a_little_too_big_for_one_task_stays_whole() -> None:
    assert plan_shares({Group(0, "a"): 140, Group(0, "b"): 10}, 100) == Plan(
        {Group(0, "a"): Share(0, 1), Group(0, "b"): Share(1, 1)}, tasks=2
    )


def test_nothing_to_write_is_no_task() -> None:
    assert plan_shares({}, 100) == Plan({}, 0)


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 1000), max_size=30), st.integers(1, 300))
def test_every_task_has_work_and_none_has_too_much(sizes: dict[str, int], task_bytes: int) -> None:
    groups = {Group(0, folder): size for folder, size in sizes.items()}
    plan = plan_shares(groups, task_bytes)
    loads = [0.0] * plan.tasks
    users = [0] * plan.tasks
    for group, share in plan.shares.items():
        for task in range(share.first, share.first + share.count):
            loads[task] += groups[group] / share.count
            users[task] += 1
    assert plan.shares.keys() == groups.keys()
    assert all(users)
    assert all(load <= 1.5 * task_bytes for load in loads)


def test_a_task_has_its_share_of_the_cores_within_bounds() -> None:
    assert bucket_bytes(0, 2) == BUCKET_BYTES_MIN
    assert bucket_bytes(400 << 20, 2) == 100 << 20
    assert bucket_bytes(1 << 40, 2) == BUCKET_BYTES_MAX


def test_tables_with_several_partitions_are_named() -> None:
    assert spread_tables([Group(0, "a"), Group(0, "b"), Group(1, "")]) == {0}
    assert spread_tables([Group(0, ""), Group(1, "")]) == frozenset()
