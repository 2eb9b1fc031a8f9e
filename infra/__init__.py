"""The CDK app. Importing this package puts the node of the lock file on PATH, which aws_cdk needs at import."""

from __future__ import annotations

from infra.node import put_node_on_path

put_node_on_path()
