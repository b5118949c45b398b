"""One file a scenario; `loadtests.runner.catalogue` lists them."""
