"""The kinds of sources by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alluvia.events.sources.kinds.credentials import Basic, Bearer, Open, SharedToken
from alluvia.events.sources.kinds.github import GitHub
from alluvia.events.sources.kinds.gitlab import GitLab
from alluvia.events.sources.kinds.hmac_header import HmacHeader
from alluvia.events.sources.kinds.segment import WriteKey
from alluvia.events.sources.kinds.shopify import Shopify
from alluvia.events.sources.kinds.slack import Slack
from alluvia.events.sources.kinds.standard_webhooks import StandardWebhooks
from alluvia.events.sources.kinds.stripe import Stripe
from alluvia.events.sources.kinds.twilio import Twilio

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
