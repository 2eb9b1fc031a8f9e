"""The sidecar action of a v2 checkpoint. Pure. Source: Delta protocol, "Sidecar File Information"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from alluvia.log.fields import Json, text, text_map, whole
from alluvia.log.paths import LOG_FOLDER, decode_path

SIDECAR_FOLDER = LOG_FOLDER + "_sidecars/"


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A file with file actions of a checkpoint. `name` is below the table's root, `modification_time` in ms."""

    name: str
    size: int
    modification_time: int
    tags: Mapping[str, str] = field(default_factory=dict, compare=False)

    def to_json(self) -> Json:
        """Return the action's body."""
        return {
            "path": self.name.removeprefix(SIDECAR_FOLDER),
            "sizeInBytes": self.size,
            "modificationTime": self.modification_time,
            "tags": dict(self.tags),
        }

    @classmethod
    def from_json(cls, body: Json) -> Sidecar:
        """Read the action's body. Of a whole URI the name counts: sidecars lie in one folder. Raises `ValueError`."""
        name = decode_path(text(body, "path")).rpartition("/")[2]
        if not name or name in {".", ".."}:
            msg = f"path is {body['path']!r}, which names no file"
            raise ValueError(msg)
        return cls(
            SIDECAR_FOLDER + name, whole(body, "sizeInBytes"), whole(body, "modificationTime"), text_map(body, "tags")
        )
