-- A change of the key pepper (ops/decisions/0098). A digest can be made anew only when its secret is presented, so its
-- row says which pepper it is under; sealed columns need no such mark, because opening one tells.
ALTER TABLE installation
    ADD COLUMN previous_print    bytea,           -- fingerprint of the pepper before the present one
    ADD COLUMN pepper_changed_at timestamptz;

ALTER TABLE api_keys ADD COLUMN pepper_print bytea;        -- fingerprint of the digest's pepper; null: the present one
ALTER TABLE recovery_codes ADD COLUMN pepper_print bytea;  -- the same
