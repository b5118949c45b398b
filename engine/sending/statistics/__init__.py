"""Count an account's mail: messages by local day, and usage by month."""
