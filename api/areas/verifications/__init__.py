"""Verifications: `/v1/verifications`, their branding, and the public pages of logos and links."""
