"""Accepted findings of cdk-nag: each with the construct that it is about and a reason."""

from __future__ import annotations

import re

from aws_cdk import Acknowledgment, Stack, Validations
from constructs import IConstruct


def accept(construct: IConstruct, rule: str, reason: str) -> None:
    """Accepts one finding of the AwsSolutions pack on `construct` and what is below it.

    `rule` is the rule's name, with the finding in brackets where a rule can have many, as in `IAM5[Action::s3:Get*]`.
    """
    Validations.of(construct).acknowledge(Acknowledgment(id=f"AwsSolutions-{rule}", reason=reason))


def accept_wildcard(construct: IConstruct, resource: str, reason: str) -> None:
    """Accepts that a policy below `construct` names `resource`, an ARN with a wildcard at its end."""
    accept(construct, f"IAM5[Resource::{_as_cdk_nag_shows(Stack.of(construct).resolve(resource))}]", reason)


def _as_cdk_nag_shows(value: object) -> str:
    """A resolved value as text: `<Id>` for a Ref, `<Id.Attribute>` for a GetAtt."""
    match value:
        case str():
            return value
        case {"Ref": name}:
            return f"<{name}>"
        case {"Fn::GetAtt": [name, attribute]}:
            return f"<{name}.{attribute}>"
        case {"Fn::Sub": str() as template}:
            return re.sub(r"\$\{([^}]+)\}", r"<\1>", template)
        case {"Fn::Join": ["", [*parts]]}:
            return "".join(map(_as_cdk_nag_shows, parts))
        case _:
            raise TypeError(f"cannot show {value!r} as cdk-nag does")
