"""Handle mail content: addresses, composing, reading, signing, replies. Pure: bytes in, bytes out, no I/O."""
