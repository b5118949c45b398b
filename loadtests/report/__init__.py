"""The report of a load test: records read back, samples of the service, figures, plots and a page."""
