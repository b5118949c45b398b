"""`ops bench`: measurements on a separate service; `catalogue` lists them."""
