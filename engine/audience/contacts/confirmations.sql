-- name: ask_confirmation
-- Store link $1 to confirm contact $3 of account $2, asked for by sender $4 at $5, until $6. It replaces an earlier one.
INSERT INTO contact_confirmations (id, account_id, contact_id, sender, mailed_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (contact_id) DO UPDATE
SET id = excluded.id, sender = excluded.sender, mails = contact_confirmations.mails + 1, mailed_at = excluded.mailed_at,
    expires_at = excluded.expires_at;

-- name: asked
-- Return how many confirmations contact $2 of account $1 was mailed, and when the last.
SELECT mails, mailed_at FROM contact_confirmations WHERE account_id = $1 AND contact_id = $2;

-- name: read_confirmation
-- Read the state of link $1.
SELECT f.account_id, f.contact_id, f.sender, c.email, f.confirmed_at IS NOT NULL AS confirmed, f.expires_at
FROM contact_confirmations f JOIN contacts c ON c.id = f.contact_id WHERE f.id = $1;

-- name: confirm_contact
-- Confirm contact $2 of account $1 by its link $3 at $4: its consent becomes the strongest, recorded by itself.
WITH link AS (
    UPDATE contact_confirmations SET confirmed_at = $4 WHERE id = $3 AND confirmed_at IS NULL AND expires_at > $4
    RETURNING contact_id
)
UPDATE contacts SET confirmed = true, consent = 'signed_up', consent_at = $4, consent_by = 'contact', updated_at = $4
WHERE account_id = $1 AND id = $2 AND id IN (SELECT contact_id FROM link)
RETURNING id;
