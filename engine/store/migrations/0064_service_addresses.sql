-- Addresses that mail claims because every mail domain must have them: `postmaster@` of a domain, for the platform account
-- also `abuse@`. Neither they nor their mail count against a plan.
ALTER TABLE inbound_addresses ADD COLUMN in_plan boolean NOT NULL DEFAULT true;
UPDATE inbound_addresses a SET in_plan = false
FROM platform p
WHERE p.account_id = a.account_id AND a.domain_id IS NULL AND a.canonical ~ '^(postmaster|abuse)@';
