"""Store accounts, which operators create or sign-up creates, each with its head and its transactional stream."""
