"""The public page behind unsubscribe links."""
