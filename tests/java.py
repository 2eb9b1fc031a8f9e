"""How the tests run Java."""

from __future__ import annotations

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options for a short life: compiling well costs more than it brings."""
