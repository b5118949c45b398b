-- What of an account's day was simulated: it counts like any mail, and is left out where the account is judged by its mail.

-- By UTC day: messages to the simulator's recipients alone, by acceptance; their recipients' fates, by outcome.
CREATE TABLE simulated_days (
    account_id uuid NOT NULL REFERENCES accounts,
    day        date NOT NULL,
    messages   integer NOT NULL DEFAULT 0,
    settled    integer NOT NULL DEFAULT 0,
    bounced    integer NOT NULL DEFAULT 0,
    complained integer NOT NULL DEFAULT 0,
    PRIMARY KEY (account_id, day)
) WITH (fillfactor = 50);
