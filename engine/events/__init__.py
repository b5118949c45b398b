"""Events: the account log as others receive it, by webhook and by tail."""
