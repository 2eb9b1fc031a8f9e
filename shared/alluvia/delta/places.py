"""Where the files of a table may be: every path of a log goes through this module; and tables that are elsewhere. Pure.

A file lies below its table's root. What the log claims beyond that counts only where this lake has it on record: an
external table's folders, which the log here declares, and the tables whose files a shallow clone shares, each by the
keeper that `clone` has put there for it. The log of a table outside the lake claims nothing. A path is decoded once, as
the log is read, and judged here; `store/uris.py` says where symbolic links may lead.

The log of an attached table has one version, without files, whose metadata says where the table is. A reader feature
keeps other Delta readers from taking it for an empty table.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

import orjson

from alluvia.delta.lineage import is_dropped
from alluvia.delta.log.actions import Metadata
from alluvia.delta.log.paths import is_absolute
from alluvia.delta.properties import ATTACHED, CLONE_OF, EXTERNAL
from alluvia.errors import Corrupt, Unsupported
from alluvia.store import Store, Wrapper
from alluvia.store.outside import is_outside
from alluvia.table_names import REJECTS, TABLE_OR_REJECTS

_WINDING = re.compile(r"(^|/)(\.{0,2})/|(^|/)\.{1,2}$")
"""A path with empty parts, or with `.` or `..`."""
_NO_FILE = re.compile(r"^$|/$|\0")


class TablePlaces:
    """Gives the keys of a table's files in its store; without a store, of those whose paths are relative.

    `root` is the start of the table's keys.
    """

    def __init__(self, store: Store | None, root: str, metadata: Metadata) -> None:
        self._store = store
        self._root = root
        self._metadata = metadata
        # The table of rejected events lies in the folder of its table, and is another one.
        self._rejects = "" if not root or is_outside(root) or REJECTS in root else f"{REJECTS}/"
        self._others: tuple[str, ...] | None = None

    def key(self, path: str) -> str:
        """Return the key of a path of the log (decoded), relative to the table's root or absolute.

        One GET for each table that a shallow clone shares files of, the first time that one is asked for. Raises
        `Unsupported` for a path that leads out of the table, and `Corrupt`.
        """
        key = None
        if not _NO_FILE.search(path):
            key = self._absolute(path) if is_absolute(path) else self._relative(path)
        if key is None:
            raise Unsupported(
                f"file {path:.200} of the table is outside the table's folder, and a lake reads no files there: "
                "make a deep clone of the table, or open it alone with alluvia.open_table"
            )
        return key

    def _relative(self, path: str) -> str | None:
        if not _WINDING.search(path):
            return None if self._rejects and path.startswith(self._rejects) else self._root + path
        scheme, mark, folder = self._root.rpartition("://")
        plain = posixpath.normpath(folder + path)
        return None if plain.startswith("../") else self._own(f"{scheme}{mark}{plain}")

    def _own(self, key: str) -> str | None:
        """Return a key that is below the root."""
        rest = key[len(self._root) :]
        if not key.startswith(self._root) or _WINDING.search(rest) or is_absolute(rest):
            return None
        return None if not rest or (self._rejects and rest.startswith(self._rejects)) else key

    def _absolute(self, path: str) -> str | None:
        key = None if self._store is None else self._store.locate(path)
        if key is None or self._store is None:
            return None
        if self._store.is_wide:
            return key
        if (own := self._own(key)) is not None:
            return own
        if self._others is None:  # not a cached property, which in Python 3.11 holds a lock during the requests
            self._others = self._recorded()
        return next((key for root in self._others if _is_below(key, root)), None)

    def _recorded(self) -> tuple[str, ...]:
        """Return the prefixes of keys elsewhere that this lake has on record."""
        configuration = self._metadata.configuration
        if is_outside(self._root):
            return ()
        if EXTERNAL in configuration:
            folders = (each.rstrip("/") for each in external_folders(self._metadata))
            return tuple(f"{each}/" for each in folders if is_outside(each))
        return tuple(f"{table}/" for table, keeper in bases_of(configuration) if self._is_kept(table, keeper))

    def _is_kept(self, table: str, name: str) -> bool:
        """Whether a keeper of a table's files was put for this table: no writer of its log alone can make one."""
        from alluvia.delta.refs import CLONE, OWNER, find_keeper, is_keeper_name  # most tables are no clones

        store = self._store
        while isinstance(store, Wrapper) and store.is_branch:
            store = store.inner
        if store is None or not TABLE_OR_REJECTS.fullmatch(table) or not is_keeper_name(name):
            return False
        keeper = find_keeper(store, table, CLONE, name)
        return keeper is not None and keeper.details.get(OWNER) == self._root.rstrip("/")


def _is_below(key: str, root: str) -> bool:
    rest = key[len(root) :]
    return key.startswith(root) and bool(rest) and not _WINDING.search(rest) and not rest.startswith(f"{REJECTS}/")


def bases_of(properties: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the keepers that a shallow clone was given, as tables and names. Raises `Corrupt`."""
    try:
        return [(str(each["table"]), str(each["keeper"])) for each in orjson.loads(properties.get(CLONE_OF, "[]"))]
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"property {CLONE_OF} cannot be read: only this library may set it") from error


def attached_from(metadata: Metadata) -> str | None:
    """Return where the table is that is attached; None for a table of this lake, and where it was detached."""
    configuration = metadata.configuration
    return None if is_dropped(configuration) else configuration.get(ATTACHED)


def external_folders(metadata: Metadata) -> list[str]:
    """Return the places below which an external table's files are. Raises `Corrupt`."""
    try:
        return [str(each) for each in orjson.loads(metadata.configuration[EXTERNAL])["folders"]]
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"property {EXTERNAL} cannot be read: only this library may set it") from error


def read_only_message(name: str, place: str) -> str:
    """Say that nothing can be written to an attached table."""
    return f"table {name!r} is attached from {place}: it can only be read here; write to it in its own lake"
