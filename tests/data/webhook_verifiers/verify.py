"""Verify posts with the Python packages `standardwebhooks` and `svix`: prints for each package which it accepts."""

import json
import sys
from typing import Any

import standardwebhooks
import svix.webhooks


def accepted(module: Any, post: dict[str, Any]) -> bool:
    """Return True if the package accepts the post."""
    try:
        module.Webhook(post["secret"]).verify(post["body"], post["headers"])
    except module.WebhookVerificationError:
        return False
    return True


posts = json.load(sys.stdin)
sys.stdout.write(
    json.dumps([[accepted(module, post) for post in posts] for module in (standardwebhooks, svix.webhooks)])
)
