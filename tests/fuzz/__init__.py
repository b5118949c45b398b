"""Every reader of octets from outside, fed with valid examples that were broken at random."""
