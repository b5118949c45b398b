"""Who delivers what: members, leases, and the assignment of shards to them."""
