"""Emails as blocks: the document that an editor stores, and its rendering as HTML and text."""
