"""Address checks: whether mail to an address can be delivered, by syntax, DNS and lists."""
