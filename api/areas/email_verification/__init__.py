"""What runs over a mailbox: confirming an address, changing it, and passwords."""
