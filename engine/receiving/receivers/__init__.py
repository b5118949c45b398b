"""How receiving mail servers treat mail at present, and when a new message will probably arrive."""
