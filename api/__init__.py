"""The HTTP door: REST operations on Falcon, served by Granian."""
