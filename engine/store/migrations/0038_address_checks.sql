-- Address checks that are under way: counted in plan_usage, and given back if their process dies.
CREATE TABLE address_check_reservations (
    id         uuid PRIMARY KEY,
    account_id uuid NOT NULL REFERENCES accounts,    -- that pays: the parent of a sub-account
    month      date NOT NULL,
    checks     integer NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX address_check_reservations_by_account ON address_check_reservations (account_id);
CREATE INDEX address_check_reservations_expired ON address_check_reservations (expires_at);
