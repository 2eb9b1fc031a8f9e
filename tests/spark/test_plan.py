from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from alluvia.delta.partitioning.partition import PartitionRows
from alluvia.delta.partitioning.spec import parse_spec
from alluvia.delta.partitioning.transforms import Key
from alluvia_spark.backfill_job.plan import (
    BUCKET_BYTES_MAX,
    BUCKET_BYTES_MIN,
    FILE_BYTES_MAX,
    Group,
    Plan,
    Share,
    Weight,
    bucket_bytes,
    plan_layout,
    plan_shares,
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


def test_a_partition_has_several_tasks_only_if_each_can_fill_a_file() -> None:
    sizes = {Group(0, "a"): 900, Group(0, "b"): 80, Group(0, "c"): 10, Group(0, "d"): 80}
    shares = plan_shares(sizes, 100, file_bytes=450).shares
    assert [shares[group].count for group in sorted(shares)] == [2, 1, 1, 1]
    assert len({shares[Group(0, name)].first for name in "bcd"}) == 2
    [share] = plan_shares({Group(0, "a"): 4 * FILE_BYTES_MAX}, 100, file_bytes=8 * FILE_BYTES_MAX).shares.values()
    assert share.count == 4


def test_rows_are_cut_into_ranges_of_days() -> None:
    days = [f"2024-{month:02}-{day:02}" for month in range(1, 7) for day in range(1, 26)]
    spec = parse_spec(
        ["land", "day(ts)"], pa.schema([("land", pa.string()), ("ts", pa.timestamp("us")), ("n", pa.int8())])
    )
    weights: dict[tuple[tuple[str | None, ...], Key], Weight] = {
        ((land,), ((False, day),)): Weight(10, 1 << 20, 1 << 18) for day in days for land in ("a", None)
    }
    layout, sizes, file_bytes = plan_layout(0, spec, weights, 1 << 20)
    assert file_bytes == 4 << 20
    assert len(sizes) == 2 * 150 // 4 + 1
    assert max(sizes.values()) == 4 << 20
    parts = [PartitionRows(("a",), ((False, day),), 5) for day in days[2:6]]
    parts.append(PartitionRows((None,), ((False, days[0]),), 3))
    first, second, null = layout.places(parts)
    assert first[0].folder == "land=a/ts_day=2024-01-01..2024-01-04/"
    assert second[0].folder == "land=a/ts_day=2024-01-05..2024-01-08/"
    assert null[0].folder == "land=__HIVE_DEFAULT_PARTITION__/ts_day=2024-01-01..2024-01-04/"
    assert [(start, end) for _, start, end in (first, second, null)] == [(0, 10), (10, 20), (20, 23)]
