"""How receiving mail servers treat mail."""
