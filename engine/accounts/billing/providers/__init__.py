"""Payment providers: what billing needs of one (`protocol.py`), and the implementations."""
