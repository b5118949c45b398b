"""Address checks: `/v1/address-checks`."""
