"""The dbt adapter for Alluvia's lakes. dbt finds it by the name of this package, for `type: alluvia` in a profile."""

from __future__ import annotations

from dbt.adapters.base import AdapterPlugin

from dbt.adapters.alluvia.credentials import AlluviaCredentials
from dbt.adapters.alluvia.impl import AlluviaAdapter
from dbt.include import alluvia

Plugin = AdapterPlugin(adapter=AlluviaAdapter, credentials=AlluviaCredentials, include_path=alluvia.PACKAGE_PATH)
