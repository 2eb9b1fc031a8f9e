"""The kinds of sources by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alluvia.events.sources.kinds.code_hosts import GitHub, GitLab
from alluvia.events.sources.kinds.generic import (
    Basic,
    Bearer,
    HmacHeader,
    Open,
    SharedToken,
    StandardWebhooks,
    WriteKey,
)
from alluvia.events.sources.kinds.services import Shopify, Slack, Stripe, Twilio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alluvia.events.sources.kinds.base import Kind

KINDS: Mapping[str, Kind] = {
    "standard-webhooks": StandardWebhooks(),
    "github": GitHub(),
    "stripe": Stripe(),
    "shopify": Shopify(),
    "slack": Slack(),
    "twilio": Twilio(),
    "gitlab": GitLab(),
    "hmac": HmacHeader(),
    "basic": Basic(),
    "bearer": Bearer(),
    "token": SharedToken(),
    "segment": WriteKey(),
    "open": Open(),
}
