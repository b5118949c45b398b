"""Second factors: the codes of an authenticator app, and the recovery codes for its loss."""
