"""The end of runs with tags, branches or clones: once they have been let go, vacuum leaves nothing that they kept."""

from __future__ import annotations

from datetime import timedelta

from alluvia.api.lake import Lake
from alluvia.delta.refs import KEPT, LAKE
from tests.simulation.branched import BRANCHES
from tests.simulation.branching import SIDE, has_branches
from tests.simulation.checker import Event
from tests.simulation.cloning import has_clones
from tests.simulation.events import event_rows
from tests.simulation.faults import HOUR_US
from tests.simulation.s3 import Process
from tests.simulation.scheduler import Violation
from tests.simulation.tagging import has_tags
from tests.simulation.tags import left_over
from tests.simulation.world import BANK, EVENTS, REJECTS, World

CHAIN_MAX = 3
"""More rounds of vacuum are for chains of clones: each lets the one before it go."""


def finish(world: World) -> None:
    """Let go of all that was kept, and see that it goes."""
    if not has_tags(world) and not has_branches(world) and not has_clones(world):
        return
    lake = world.open(Process(), "letting go", 0)
    world.checker.tags.known.clear()
    for tag in lake.tags(tables=True):
        (lake if tag.table is None else lake.table(tag.table)).drop_tag(tag.name)
    for branch in world.checker.branches.values():
        branch.end()
    if has_branches(world):
        lake.branch("last")  # what was written on branches after they were discarded goes with the next one
    for info in lake.branches():
        lake.drop_branch(info.name)
    for name in sorted({*world.clones} & {*lake.tables()}):
        lake.drop_table(name)
    clones = [f"{name}/" for name in world.clones if f"{name}/" in world.checker.tables]
    roots = [root for root in (BANK, SIDE, EVENTS, REJECTS) if root in world.checker.tables]
    touched = has_branches(world) or has_clones(world)
    for _ in range(1 + min(len(world.clones), CHAIN_MAX)):  # those that never came have keepers, too
        if touched:
            for root in roots[:-1] if REJECTS in roots else roots:
                _touch(lake, root, world.scheduler.now_us)
        world.scheduler.now_us += 60 * HOUR_US
        lake = world.open(Process(), f"letting go {world.scheduler.now_us}", 0)
        for root in (*reversed(clones), *roots):
            lake.table(root[:-1]).vacuum(timedelta(milliseconds=world.limits.file_retention_ms))
    _check_gone(world, lake, [*roots, *clones], touched=touched)


def _touch(lake: Lake, root: str, now_us: int) -> None:
    """Give the next vacuum something to delete: else it does not look for what is kept."""
    table = lake.table(root[:-1])
    if root == EVENTS:
        table.append(event_rows([Event("e900000", now_us)], now_us))
        table.delete("event_id = 'e900000'")
    else:
        table.append([{"id": "gone", "amount": 0, "owner": "gone"}])
        table.delete("id = 'gone'")


def _check_gone(world: World, lake: Lake, roots: list[str], *, touched: bool) -> None:
    """Raise `Violation` if something is left that no table needs; of keepers, if all vacuums have looked for them."""
    objects = world.bucket.objects
    looked = [f"{LAKE}/", *(root for root in roots if root != REJECTS)] if touched else []
    for start in (BRANCHES, *(KEPT + root for root in looked)):
        if left := [key for key in objects if key.startswith(start) and "/_rejects/" not in key]:
            raise Violation("what nothing needs goes", f"{left}")
    before_us = world.scheduler.now_us - 1000 * world.limits.file_retention_ms - HOUR_US
    needed = set().union(*(table.needed() for table in world.checker.tables.values()))
    for root in roots:
        if left := sorted(left_over(world.model(root), objects, before_us)):
            raise Violation("what nothing needs goes", f"{root}: {left}")
        data = {key for key in objects if key.startswith(root) and key.endswith(".parquet") and "/_" not in key}
        if data - needed:
            raise Violation("what nothing needs goes", f"{sorted(data - needed)}")
        commits = sorted(lake.table(root[:-1])._handle.log.listing().commits)
        if commits != list(range(commits[0], commits[-1] + 1)):
            raise Violation("what nothing needs goes", f"the log of {root} has {commits}")
