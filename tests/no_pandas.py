"""DuckDB looks for pandas on disk with every parameter that it binds: say that it is not there."""

from __future__ import annotations


class NoPandas:
    """A finder for `sys.meta_path` that says at once that pandas is not there."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)
