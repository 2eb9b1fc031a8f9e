from __future__ import annotations

from tests.unit.verify.damages import hands, sound

__all__ = ["hands", "sound"]
