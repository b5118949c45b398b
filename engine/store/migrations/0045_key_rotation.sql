-- The key that replaces a rotated one. Both authenticate until the old one expires.
ALTER TABLE api_keys ADD COLUMN replaced_by uuid;
CREATE INDEX api_keys_replaced ON api_keys (replaced_by) WHERE replaced_by IS NOT NULL;
