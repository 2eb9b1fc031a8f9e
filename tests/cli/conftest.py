from __future__ import annotations

from tests.unit.operations.damages import hands, sound

__all__ = ["hands", "sound"]
