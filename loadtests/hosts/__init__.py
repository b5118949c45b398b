"""Several hosts on one machine: network namespaces joined by a bridge, each with a part of the service.

Used by `ops hosts` and `ops drill hosts`. Cutting a host off has the effect of a pulled cable. Linux and root only.
"""
