"""Property tests run on busy machines: no example has a deadline."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("without-deadline", deadline=None)
settings.load_profile("without-deadline")
