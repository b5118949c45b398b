"""Handle mail content: addresses, composing, reading, templates, reports, replies. Pure: no I/O."""
