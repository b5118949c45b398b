"""Store members of accounts and invitations."""
