"""Assign the queue's shards to mta processes: members, leases, placement, splitting of busy domains."""
