"""The pages that people open from links in customers' mail: one style, eight languages, no script."""
