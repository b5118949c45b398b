"""The live tail and the pull of events."""
