"""The documentation site: guides, the reference of the API, search, and their Markdown copies, served at `/docs`."""
