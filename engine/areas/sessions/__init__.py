"""Signed-in people: a session is a secret in a cookie, known here by its digest alone."""
