"""Check send requests and build the message that acceptance stores."""
