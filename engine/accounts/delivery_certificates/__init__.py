"""Sign statements about the delivery of single messages, which anybody can verify without the service."""
