"""The parts that all operations share: the operation record, authentication, limits, decoding, errors, OpenAPI."""
