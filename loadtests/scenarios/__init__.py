"""Locust files, one for each scenario of `loadtests.runner.catalogue`."""
