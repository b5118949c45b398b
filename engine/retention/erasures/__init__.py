"""Record requests to erase the data of one recipient from an account, and their progress."""
