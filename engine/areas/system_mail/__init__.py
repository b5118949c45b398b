"""Mail of the service itself: written down with the change that it tells of, sent soon after."""
