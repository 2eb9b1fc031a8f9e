from __future__ import annotations

from tests.unit.query.conftest import lake

__all__ = ["lake"]
