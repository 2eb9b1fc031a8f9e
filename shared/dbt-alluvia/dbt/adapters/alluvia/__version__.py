"""The version of the adapter, which `dbt --version` shows. It is that of the library."""

from __future__ import annotations

version = "0.1.0"
