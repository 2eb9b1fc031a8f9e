"""Write checkpoints to a log, each object only after those that it names. I/O.

A v1 checkpoint is one file. For a v2 checkpoint, the new sidecars are written first, then the file that names all of
them. `_last_checkpoint` always comes last. If a writer dies in between, the previous checkpoint stays valid, and
clean-up deletes the sidecars that nothing names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson

from alluvia.clock import Clock
from alluvia.delta.log.actions import AddFile, RemoveFile
from alluvia.delta.log.checkpoints.v2 import NewSidecar, manifest, new_sidecar, plan_adds, plan_removes
from alluvia.delta.log.checkpoints.writer import Form, few_actions, in_one_layer, write_checkpoint
from alluvia.delta.log.files.action_rows import FileRows
from alluvia.delta.log.files.file_set import ActionSet
from alluvia.delta.log.files.parquet import ActionFile
from alluvia.delta.log.paths import LAST_CHECKPOINT, checkpoint_name, sidecar_name, v2_checkpoint_name
from alluvia.delta.log.replay import State
from alluvia.errors import KeyTaken, ObjectNotFound, Unavailable
from alluvia.lazy_dataclasses import dataclass
from alluvia.store import Store


@dataclass(frozen=True, slots=True)
class Hint:
    """What `_last_checkpoint` says: a checkpoint's version, and how many data files it holds, if it says that."""

    version: int
    files: int | None = None


def parse_last_checkpoint(data: bytes) -> Hint | None:
    """Return what a `_last_checkpoint` says; None when it cannot be read, since it is only a hint."""
    try:
        body = orjson.loads(data)
        version, files = body.get("version"), body.get("numOfAddFiles")
    except (ValueError, AttributeError):
        return None
    if type(version) is not int or version < 0:
        return None
    return Hint(version, files if type(files) is int else None)


def last_checkpoint(version: int, rows: int, size_in_bytes: int, files: int) -> bytes:
    """Return the body of `_last_checkpoint`."""
    return orjson.dumps({"version": version, "size": rows, "sizeInBytes": size_in_bytes, "numOfAddFiles": files})


PUT_AGE_MS_MAX = 12 * 60 * 60 * 1000
"""Clean-up may delete sidecars that no checkpoint names after a day."""
REPLACE_TRIES = 8


@dataclass(frozen=True, slots=True)
class WrittenCheckpoint:
    """A checkpoint: the objects that were written, with their sizes in bytes, and the state that opening it gives."""

    sizes: dict[str, int]
    state: State


def put_checkpoint(store: Store, root: str, state: State, after_ms: int, form: Form) -> WrittenCheckpoint:
    """Write a v1 checkpoint of a state, without the tombstones up to a time."""
    state = in_one_layer(state)
    data, rows = write_checkpoint(state, after_ms, form)
    name = checkpoint_name(state.version)
    put_single(store, root + name, data)
    hint = last_checkpoint(state.version, rows, len(data), len(state.files))
    store.put(root + LAST_CHECKPOINT, hint)
    file, adds = ActionFile(name, data), len(state.files)
    file.know_counts({"add": adds, "remove": rows - adds - len(few_actions(state))})
    return WrittenCheckpoint(
        {name: len(data), LAST_CHECKPOINT: len(hint)},
        replace(
            state,
            files=ActionSet(AddFile.from_json, [FileRows(file, "add", AddFile.from_json)]),
            tombstones=ActionSet(RemoveFile.from_json, [FileRows(file, "remove", RemoveFile.from_json)]),
        ),
    )


def put_single(store: Store, key: str, data: bytes) -> None:
    """Write a checkpoint of one file, whose name says no more than its version: another process may have written one.

    That one is replaced, by `If-Match`: it may be damaged, or hold values that are to be erased. Raises `Unavailable`
    if it is replaced by others again and again.
    """
    for _ in range(REPLACE_TRIES):
        try:
            store.put_new(key, data)
        except KeyTaken:
            with suppress(ObjectNotFound):  # clean-up has deleted it
                _, tag = store.get_tagged(key)
                if store.put_if_same(key, data, tag):
                    return
        else:
            return
    raise Unavailable(f"{key} is written by others again and again: try again")


def put_v2_checkpoint(
    store: Store, root: str, state: State, after_ms: int, form: Form, clock: Clock
) -> WrittenCheckpoint:
    """Write a v2 checkpoint of a state: the sidecars whose files changed, and what names those and the others.

    Raises `Unavailable`, and leaves no checkpoint, if that took so long that clean-up may have deleted some of them.
    """
    began_ms = clock.now_ms()

    def check_age() -> None:
        if clock.now_ms() - began_ms > PUT_AGE_MS_MAX:
            raise Unavailable(f"writing a checkpoint of version {state.version} took over 12 hours: try again")

    def sidecars(rows: Sequence[Any], kind: str, parse: Callable[[Any], Any]) -> list[NewSidecar[Any]]:
        now_ms = clock.now_ms()
        return [new_sidecar(each, kind, parse, sidecar_name(clock.new_id()), now_ms, form) for each in rows]

    adds = plan_adds(state.files.in_one_layer(), form)
    removes = plan_removes(state.tombstones.in_one_layer(), after_ms)
    new_adds = sidecars(adds.new, "add", AddFile.from_json)
    new_removes = sidecars(removes.new, "remove", RemoveFile.from_json)
    new = {each.rows.file.name: each.data for each in (*new_adds, *new_removes)}
    store.put_new_many({root + name: data for name, data in new.items()})
    files = ActionSet(AddFile.from_json, [*adds.kept, *(each.rows for each in new_adds)])
    tombstones = ActionSet(RemoveFile.from_json, [*removes.kept, *(each.rows for each in new_removes)])
    named = [*(part.file.sidecar for part in adds.kept), *(part.file.sidecar for part in removes.kept)]
    data, actions = manifest(state, [*named, *(each.rows.file.sidecar for each in (*new_adds, *new_removes))])
    name = v2_checkpoint_name(state.version, clock.new_id())
    check_age()
    store.put_new(root + name, data)
    try:
        check_age()
    except Unavailable:  # no other writer uses this name
        store.delete([root + name])
        raise
    size = len(data) + sum(sidecar.size for sidecar in named) + sum(map(len, new.values()))
    rows = actions + len(files) + len(tombstones)
    hint = last_checkpoint(state.version, rows, size, len(files))
    store.put(root + LAST_CHECKPOINT, hint)
    sizes = {**{each: len(body) for each, body in new.items()}, name: len(data), LAST_CHECKPOINT: len(hint)}
    return WrittenCheckpoint(sizes, replace(state, files=files, tombstones=tombstones))
