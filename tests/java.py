"""How the tests run Java."""

from __future__ import annotations

QUICK = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
"""Options for a short life: compiling well costs more than it brings. What is compiled badly still needs room: Spark
compiles more than the 48 MB that Java then allows, and would forget it and compile it again all the time. The
verification of the classes of published jars is a quarter of the start of a Spark."""
