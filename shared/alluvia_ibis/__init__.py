"""The backend of ibis for Alluvia's lakes: `ibis.alluvia.connect("lake")`.

ibis finds it by the entry point `ibis.backends` of this package, and loads it when `ibis.alluvia` is first used.
"""

from __future__ import annotations

from alluvia_ibis.backend import Backend

__all__ = ["Backend"]
