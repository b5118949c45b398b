"""Delivery: queue rows, shards, hints, the retry schedule, the meaning of replies, limits of sites, source
addresses.
"""
