"""`pyarrow.compute` as `pc`, loaded when it is first used.

It makes 300 functions and their documentation when it is loaded, which takes as long as loading Arrow itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["pc"]

if TYPE_CHECKING:
    from pyarrow import compute as pc
else:

    class _Compute:
        def __getattr__(self, name):
            import pyarrow.compute

            found = getattr(pyarrow.compute, name)
            setattr(self, name, found)
            return found

    pc = _Compute()
