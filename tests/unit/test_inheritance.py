"""Stand-ins implement a protocol with parts; none inherits an implementation to override some of it."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import alluvia.api
import alluvia.operations
from alluvia.api.lake import Lake, Table
from alluvia.api.lake_branch import Branch
from alluvia.api.lake_catalog import LakeCatalog
from alluvia.api.lake_transaction import LakeTransaction
from alluvia.commit.transaction import Transaction
from alluvia.commit.warm_table import WarmTable
from alluvia.delta.snapshot import Snapshot


@pytest.fixture(scope="module", autouse=True)
def _all_loaded() -> None:
    for package in (alluvia.api, alluvia.operations):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


@pytest.mark.parametrize("implementation", [LakeCatalog, Snapshot, Table, Transaction, WarmTable])
def test_nothing_inherits_an_implementation(implementation: type) -> None:
    assert implementation.__subclasses__() == []


@pytest.mark.parametrize("composed", [Branch, Lake, LakeTransaction, Table])
def test_a_class_of_the_api_adds_to_its_bases_and_overrides_nothing(composed: type) -> None:
    bases = composed.__mro__[1:-1]
    inherited = {
        name
        for base in bases
        for name, value in vars(base).items()
        if not name.startswith("__") and not getattr(value, "__isabstractmethod__", False)
    }
    assert {name for name in vars(composed) if name in inherited} <= {"_abc_impl", "_is_protocol"}
