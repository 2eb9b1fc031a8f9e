"""Who may read which secrets of webhook sources."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam

from infra.setting_values import WebhookSecret

_ACTIONS = {"secretsmanager": "secretsmanager:GetSecretValue", "ssm": "ssm:GetParameter"}
# Secrets Manager puts a hyphen and six characters of its own after a secret's name.
_SUFFIX = "-??????"


def allow_secrets(role: iam.Role, secrets: Sequence[WebhookSecret]) -> None:
    """Lets `role` read these secrets, and no others.

    A secret under a customer-managed key also wants `kms:Decrypt` on that key, which its owner grants.
    """
    for place, action in _ACTIONS.items():
        found = [_arn(role, secret) for secret in secrets if secret.place == place]
        if found:
            role.add_to_policy(iam.PolicyStatement(actions=[action], resources=found))


def _arn(role: iam.Role, secret: WebhookSecret) -> str:
    if secret.name.startswith("arn:"):
        return secret.name
    if secret.place == "secretsmanager":
        return Stack.of(role).format_arn(
            service="secretsmanager",
            resource="secret",
            resource_name=f"{secret.name}{_SUFFIX}",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
    return Stack.of(role).format_arn(service="ssm", resource="parameter", resource_name=secret.name.lstrip("/"))
