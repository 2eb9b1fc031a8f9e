"""A set of file actions, cheap at 100,000 files: rows of a checkpoint, and layers of changes on top. Pure.

A change adds a small layer, and layers of similar size are merged. So a set has few layers, and the cost of a commit
depends on what it changes, not on the number of files in the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from itertools import islice
from typing import Generic

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.log.files.action_rows import ActionRows, LogRows, Parse, T
from alluvia.delta.log.files.columns import canonical_paths, with_vectors
from alluvia.delta.log.files.sidecars import SidecarRows, open_rows

FEW_ACTIONS = 1024
"""So many actions are compared with later commits one by one: the keys of all of a section's rows cost more."""


class Layer(Generic[T]):
    """Changes by key, in order: an action, or None where the file went.

    `dropped` are the keys of files that went and had not come by a layer: they are the checkpoint's.
    """

    def __init__(self, changes: Mapping[str, T | None], dropped: Sequence[str] = ()) -> None:
        self.changes = changes
        self.dropped = dropped

    def __len__(self) -> int:
        return len(self.changes)

    def followed_by(self, later: Layer[T]) -> Layer[T]:
        """Return the changes of both as one layer."""
        kept = {key: action for key, action in self.changes.items() if key not in later.changes}
        return Layer({**kept, **later.changes}, [*self.dropped, *later.dropped])

    @cached_property
    def keys(self) -> pa.Array:
        """Return the keys that it changes."""
        return pa.array(self.changes.keys(), pa.string())

    @cached_property
    def rows(self) -> ActionRows[T]:
        """Return its actions."""
        return ActionRows([action for action in self.changes.values() if action is not None])


class ActionSet(Generic[T]):
    """An immutable set of file actions by key, in order: first the checkpoint's, then those of later commits.

    `parts` are the checkpoint's rows; `layers` change them, the oldest first. `parse` makes an action of a row.
    """

    def __init__(
        self, parse: Parse[T], parts: Iterable[LogRows[T]] = (), layers: tuple[Layer[T], ...] = (), live: int = 0
    ) -> None:
        self._parse = parse
        self.parts = tuple(parts)
        self.layers = layers
        self._live = live

    def changed(self, changes: Iterable[tuple[str, T | None]]) -> ActionSet[T]:
        """Return this set after changes in order: a key with its new action, or with None where it went."""
        changes = list(changes)
        if not self.parts and not self.layers and all(action is None for _, action in changes):
            return self  # nothing is there to go
        new: dict[str, T | None] = {}
        dropped: list[str] = []
        live = self._live
        for key, action in changes:
            known = key in new or any(key in layer.changes for layer in self.layers)
            before = new.pop(key) if key in new else self.above(key)
            live += (action is not None) - (before is not None)
            if action is None and not known:
                dropped.append(key)
            new[key] = action
        if not new:
            return self
        layers, layer = list(self.layers), Layer(new, dropped)
        while layers and len(layers[-1]) <= 2 * len(layer):
            layer = layers.pop().followed_by(layer)
        if not self.parts:
            every = layer.changes.items()
            layer = Layer(layer.changes if layers else {key: action for key, action in every if action is not None})
        if not layer.changes:
            return ActionSet(self._parse, (), ())
        return ActionSet(self._parse, self.parts, (*layers, layer), live)

    def in_one_layer(self) -> ActionSet[T]:
        """Return the same set with one layer at most, which makes a pass over all sections faster."""
        if len(self.layers) < 2:
            return self
        return ActionSet(self._parse, self.parts, (reduce(Layer.followed_by, self.layers),), self._live)

    def __repr__(self) -> str:
        return f"<ActionSet of {self.expected_len:,}>"

    def __len__(self) -> int:
        open_rows([part for part in self.parts if self.touches(part)])
        masks = [(part, self.shown(part)) for part in self.parts]
        return self._live + sum(len(part) if mask is None else mask.true_count for part, mask in masks)

    @property
    def expected_len(self) -> int:
        """Return the number of actions without opening a sidecar: right unless a commit added a file that was there."""
        return self._live + sum(map(len, self.parts)) - sum(len(layer.dropped) for layer in self.layers)

    def __iter__(self) -> Iterator[T]:
        open_rows(self.parts)
        for part in self.parts:
            yield from self.pick(part)
        yield from self.added

    def keys(self) -> Iterator[str]:
        """Yield the keys of all actions, in order: much cheaper than the actions."""
        open_rows(self.parts)
        for section in self.sections:
            shown = self.shown(section)
            yield from (section.keys if shown is None else pc.filter(section.keys, shown)).to_pylist()

    def get(self, key: str) -> T | None:
        """Return the action of a key, or None."""
        for layer in reversed(self.layers):
            if key in layer.changes:
                return layer.changes[key]
        wanted = pa.array([key], pa.string())
        for part in self.parts:
            if part.may_hold(wanted) and (at := pc.index(part.keys, wanted[0]).as_py()) >= 0:
                return next(part.actions([at]))
        return None

    def held(self, keys: Sequence[str]) -> set[str]:
        """Return those of some keys that have an action; cheaper than `get` where the action itself is not needed."""
        present = {key for key in keys if self.above(key) is not None}
        wanted = pa.array([key for key in keys if not any(key in layer.changes for layer in self.layers)], pa.string())
        for part in self.parts:
            if len(wanted) and part.may_hold(wanted):
                present |= part.held(wanted)
        return present

    @property
    def added(self) -> list[T]:
        """Return the actions on top of the checkpoint's."""
        return [action for layer in self.layers for action in self.pick(layer.rows)]

    @property
    def sections(self) -> tuple[LogRows[T], ...]:
        """Return all rows, the checkpoint's and the layers'; which of them still hold is for `pick` to say."""
        return (*self.parts, *(layer.rows for layer in self.layers))

    def pick(self, section: LogRows[T], kept: pa.BooleanArray | None = None) -> Iterator[T]:
        """Yield a section's actions that still hold, of those that are `kept` (all by default)."""
        if kept is not None and not pc.any(kept).as_py():
            return
        if kept is not None and section not in self._masks and pc.sum(kept).as_py() <= FEW_ACTIONS:
            newer = self._layers_above(section)
            actions = section.actions(pc.indices_nonzero(kept).to_pylist())
            yield from (each for each in actions if not any(each.key in layer.changes for layer in newer))
            return
        shown = self.shown(section)
        if shown is not None:
            kept = shown if kept is None else pc.and_(kept, shown)
        yield from section.actions(None if kept is None else pc.indices_nonzero(kept).to_pylist())

    def total(self, name: str) -> int:
        """Return the sum of a number over all actions, such as `size`."""
        open_rows(self.parts)
        total = 0
        for section in self.sections:
            column, shown = section.column((name,)), self.shown(section)
            if column is not None:
                total += pc.sum(column if shown is None else pc.filter(column, shown)).as_py() or 0
        return total

    def shown(self, section: LogRows[T]) -> pa.BooleanArray | None:
        """Return which rows of a section still hold; None for all of them."""
        if section not in self._masks:
            newer = self.keys_above(section)
            mask = None
            if len(newer) and section.may_hold(newer):
                hidden = pc.is_in(section.keys, value_set=newer)
                mask = pc.invert(hidden) if pc.any(hidden).as_py() else None
            self._masks[section] = mask
        return self._masks[section]

    def touches(self, section: LogRows[T]) -> bool:
        """Whether later commits may have changed a row of a section, as far as is known without opening it."""
        newer = self.keys_above(section)
        return bool(len(newer)) and section.may_hold(newer)

    def above(self, key: str) -> T | None:
        """Return the action that the layers have for a key, or None."""
        return next((layer.changes[key] for layer in reversed(self.layers) if key in layer.changes), None)

    def keys_above(self, section: LogRows[T]) -> pa.Array:
        """Return the keys that later commits than a section's changed."""
        above = [layer.keys for layer in self._layers_above(section)]
        return pa.concat_arrays(above or [pa.array([], pa.string())])

    def _layers_above(self, section: LogRows[T]) -> tuple[Layer[T], ...]:
        """Return the layers of later commits than a section's."""
        places = (at for at, layer in enumerate(self.layers) if layer.rows is section)
        return self.layers[next(places, -1) + 1 :]

    @cached_property
    def _masks(self) -> dict[LogRows[T], pa.BooleanArray | None]:
        return {}


GROUP_ROWS = 1 << 14
SIDECARS_AT_ONCE = 16
"""Sidecars that are fetched together, and so are in memory together."""
VECTOR = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)
KEY_FIELDS = {"path": pa.string(), "deletionVector": VECTOR}


def scanned(actions: ActionSet[T], fields: Mapping[str, pa.DataType]) -> Iterator[pa.StructArray]:
    """Yield the actions of a set as structs: `path` (canonical), `deletionVector`, and some fields more.

    A closed sidecar is fetched and forgotten, so that memory depends neither on the number of files nor of sidecars.
    """
    wanted = {**KEY_FIELDS, **fields}
    kinds = [pa.field(name, kind) for name, kind in wanted.items()]
    for sections in (actions.parts, *((layer.rows,) for layer in actions.layers)):
        newer = actions.keys_above(sections[0]) if sections else pa.array([], pa.string())
        for batch in grouped(rows for section in _opened(sections) for rows in section.structs(wanted)):
            paths = canonical_paths(pc.struct_field(batch, "path"))
            others = [pc.struct_field(batch, name) for name in wanted if name != "path"]
            structs = pa.StructArray.from_arrays([paths, *others], fields=kinds)
            if len(newer):
                hidden = pc.is_in(with_vectors(paths, others[0]), value_set=newer)
                structs = pc.filter(structs, pc.invert(hidden))
            yield structs


def _opened(sections: Iterable[LogRows[T]]) -> Iterator[LogRows[T]]:
    """Yield rows that can be read, of each section; those of closed sidecars come last."""
    closed: list[SidecarRows[T]] = []
    for section in sections:
        if isinstance(section, SidecarRows) and not section.is_open:
            closed.append(section)
        else:
            yield section
    waiting = iter(closed)
    while several := list(islice(waiting, SIDECARS_AT_ONCE)):
        data = several[0].file.fetch([each.file.name for each in several])
        for section, body in zip(several, data, strict=True):
            yield section.read(body)


def grouped(batches: Iterable[pa.StructArray], rows_max: int = GROUP_ROWS) -> Iterator[pa.StructArray]:
    """Yield the rows of some batches in bigger ones, of at most `rows_max` rows."""
    held: list[pa.StructArray] = []
    for batch in batches:
        if held and sum(map(len, held)) + len(batch) > rows_max:
            yield pa.concat_arrays(held)
            held = []
        if len(batch):
            held.append(batch)
    if held:
        yield pa.concat_arrays(held)
