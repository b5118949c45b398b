-- name: of_api_key
-- The account of the API key with id $1.
SELECT account_id FROM api_keys WHERE key_id = $1;

-- name: of_session
-- The account of the session with one of the digests $1, in hexadecimal with commas between.
SELECT account_id FROM sessions
WHERE digest = ANY (ARRAY(SELECT decode(one, 'hex') FROM unnest(string_to_array($1, ',')) AS one));

-- name: of_person_token
-- An account of the person of the mailed token with digest $1; no account for a person who is in none.
SELECT (SELECT m.account_id FROM members m WHERE m.user_id = t.user_id ORDER BY m.account_id LIMIT 1) AS account_id
FROM single_use_tokens t WHERE t.digest = decode($1, 'hex');

-- name: of_invite
-- The account of the invitation whose token has digest $1.
SELECT account_id FROM invites WHERE digest = decode($1, 'hex');

-- name: of_identity_step
-- An account of the person of step $1 of a sign-in with the identity provider; no account before the person is known.
SELECT (SELECT m.account_id FROM members m WHERE m.user_id = s.user_id ORDER BY m.account_id LIMIT 1) AS account_id
FROM identity_steps s WHERE s.id = $1::text::uuid;

-- name: of_passkey
-- An account of the person of the passkey with credential id $1.
SELECT (SELECT m.account_id FROM members m WHERE m.user_id = p.user_id ORDER BY m.account_id LIMIT 1) AS account_id
FROM passkeys p WHERE p.credential_id = decode($1, 'hex');

-- name: of_unsubscribe_link
-- The account of unsubscribe link $1.
SELECT account_id FROM unsubscribe_links WHERE id = $1::text::uuid;

-- name: of_confirmation
-- The account of double opt-in link $1.
SELECT account_id FROM contact_confirmations WHERE id = $1::text::uuid;

-- name: of_verification
-- The account of verification $1.
SELECT account_id FROM verifications WHERE id = $1::text::uuid;

-- name: of_message
-- The account of message $1.
SELECT account_id FROM messages WHERE id = $1::text::uuid;

-- name: of_domain
-- The account of domain $1, by id, as in the addresses of its reports.
SELECT account_id FROM domains WHERE id = $1::text::uuid;

-- name: of_image
-- An account that has the image with SHA-256 $1.
SELECT account_id FROM images WHERE sha256 = decode($1, 'hex') LIMIT 1;

-- name: of_logo
-- The account of the logo with token $1.
SELECT account_id FROM verification_settings WHERE logo_token = $1;

-- name: of_policy_host
-- The account whose MTA-STS policy is served for the domain named $1.
SELECT p.account_id FROM hosted_sts_policies p JOIN domains d ON d.id = p.domain_id
WHERE d.name = $1 AND d.deleted_at IS NULL ORDER BY (d.status = 'verified') DESC, d.id DESC LIMIT 1;

-- name: of_acme_challenge
-- Whether the challenge $1 of a certificate authority is answered here; it belongs to no account.
SELECT NULL::uuid AS account_id FROM acme_challenges WHERE token = $1;

-- name: of_payment
-- The account of the checkout, renewal charge or invoice $1.
SELECT account_id FROM checkouts WHERE id = $1::text::uuid
UNION ALL SELECT account_id FROM renewal_charges WHERE id = $1::text::uuid
UNION ALL SELECT account_id FROM invoices WHERE id = $1::text::uuid
LIMIT 1;

-- name: of_account
-- Account $1, if it is here.
SELECT id AS account_id FROM accounts WHERE id = $1::text::uuid;

-- name: of_invited
-- An account that has invited the address $1.
SELECT account_id FROM invites WHERE email = $1 ORDER BY id LIMIT 1;

-- name: of_label
-- The account of the managed receiving domain with label $1.
SELECT account_id FROM receiving_labels WHERE label = $1;

-- name: of_receiving_domain
-- The account that receives mail for the domain named $1.
SELECT account_id FROM domains WHERE name = $1 AND receives_since IS NOT NULL;
