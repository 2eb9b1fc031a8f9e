from __future__ import annotations

import ast
import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

STUBS = Path(__file__).parents[2] / "typings"


def missing(body: list[ast.stmt], owner: Any, name: str) -> list[str]:
    """Return what a stub says that its module or class does not have: names, and parameters where they are known."""
    found = []
    for node in body:
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef)) or (node.name[0] == "_" and node.name[1] != "_"):
            continue
        path = f"{name}.{node.name}"
        if not hasattr(owner, node.name) and node.name != "__buffer__":  # which Python shows from 3.12 on
            found.append(path)
        elif isinstance(node, ast.ClassDef):
            found += missing(node.body, getattr(owner, node.name), path)
        elif node.name[0] != "_" and not any(isinstance(each, ast.Name) for each in node.decorator_list):
            found += [f"{path}({each})" for each in _unknown(node.args, getattr(owner, node.name))]
    return found


def _unknown(stub: ast.arguments, function: Any) -> list[str]:
    try:
        known = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return []
    if any(each.kind is each.VAR_KEYWORD for each in known.values()):
        return []
    return [each.arg for each in (*stub.args, *stub.kwonlyargs) if each.arg not in {"self", "cls", *known}]


@pytest.mark.parametrize("file", sorted(STUBS.rglob("*.pyi")), ids=lambda file: file.stem)
def test_pyarrow_has_what_its_stubs_say(file: Path) -> None:
    module = ".".join(file.relative_to(STUBS).with_suffix("").parts).removesuffix(".__init__")
    assert missing(ast.parse(file.read_text()).body, import_module(module), module) == []
