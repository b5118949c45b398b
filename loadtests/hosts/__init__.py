"""Several hosts on one machine: network namespaces joined by a bridge, each with a part of the service.

For trying out, and for `ops drill hosts`: what is cut off here is cut off as by a pulled cable. Root on Linux only.
"""
