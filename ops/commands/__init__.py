"""The operator's commands, by what they are about."""
