"""The HTTP API: REST operations on Falcon, served by Granian."""
