"""Pure mail: addresses, composing, signing, replies. Bytes in, bytes out, no I/O."""
