"""One file a scenario; `ops.loadtest.catalogue` lists them."""
