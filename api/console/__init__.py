"""Pages for people, served beside the API: so far those that the links in system mail lead to."""
