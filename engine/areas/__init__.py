"""Areas of the service: each owns its rules, its rows and its SQL; they do not know each other."""
