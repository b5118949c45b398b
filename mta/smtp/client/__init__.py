"""The client side of SMTP, used by `mta.outbound`: a pure session, and the only sockets towards other mail servers."""
