-- name: cells
-- All cells by name.
SELECT name, api_url, submission, mx, state, weight FROM cells ORDER BY name;

-- name: put_cell
-- Add cell $1 or change its addresses: API URL $2, submission $3, MX $4, weight $5.
INSERT INTO cells (name, api_url, submission, mx, weight) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (name) DO UPDATE
    SET api_url = excluded.api_url, submission = excluded.submission, mx = excluded.mx, weight = excluded.weight;

-- name: set_state
-- Open or close ($2) cell $1 for new accounts.
UPDATE cells SET state = $2 WHERE name = $1;

-- name: next_version
-- Take the next number; the lock is held until the transaction ends.
UPDATE directory_version SET version = version + 1 RETURNING version;

-- name: place
-- Place accounts $1 in cell $2 with version $3; those that have a cell keep it.
INSERT INTO placements (account_id, cell, version) SELECT id, $2, $3 FROM unnest($1::uuid[]) AS id
ON CONFLICT (account_id) DO UPDATE SET cell = excluded.cell, version = excluded.version, updated_at = now()
WHERE placements.cell IS NULL;

-- name: placement
-- The placement of account $1.
SELECT account_id, cell, moving_to, version FROM placements WHERE account_id = $1;

-- name: placements
-- The placements of accounts $1.
SELECT account_id, cell, moving_to, version FROM placements WHERE account_id = ANY($1::uuid[]);

-- name: changes
-- At least $2 placements changed after version $1, in order, if there are as many: all of a version or none, because the
-- reader asks for higher versions next.
SELECT account_id, cell, moving_to, version FROM placements WHERE version > $1
ORDER BY version FETCH FIRST $2 ROWS WITH TIES;

-- name: version
-- The number of the last change.
SELECT version FROM directory_version;

-- name: remove
-- Remove accounts $1 of cell $2, placed over $4 seconds ago, with version $3; their rows stay without a cell, so that
-- the fronts see it.
UPDATE placements SET cell = NULL, moving_to = NULL, version = $3, updated_at = now()
WHERE account_id = ANY($1::uuid[]) AND cell = $2 AND moving_to IS NULL
    AND updated_at <= now() - make_interval(secs => $4);

-- name: placed_in
-- At most $3 accounts of cell $1 after $2, by id.
SELECT account_id, cell, moving_to, version FROM placements
WHERE cell = $1 AND account_id > $2 ORDER BY account_id LIMIT $3;

-- name: count_placed
-- The number of accounts in each cell.
SELECT cell, count(*)::int8 AS accounts FROM placements WHERE cell IS NOT NULL GROUP BY cell;

-- name: begin_move
-- Mark accounts $1 of cell $2 as moving to $3, with version $4; those that move there already too.
UPDATE placements SET moving_to = $3, version = $4, updated_at = now()
WHERE account_id = ANY($1::uuid[]) AND cell = $2 AND (moving_to IS NULL OR moving_to = $3);

-- name: finish_move
-- Give accounts $1 that are moving to $2 since version $4 that cell, with version $3.
UPDATE placements SET cell = $2, moving_to = NULL, version = $3, updated_at = now()
WHERE account_id = ANY($1::uuid[]) AND moving_to = $2 AND version = $4;

-- name: move_claims
-- Let the claims of holders $1 follow to cell $2.
UPDATE claims SET cell = $2 WHERE holder = ANY($1::uuid[]);

-- name: cancel_move
-- Let accounts $1 stay where they are, with version $2, and with them all that began to move in the same transaction.
UPDATE placements SET moving_to = NULL, version = $2, updated_at = now()
WHERE moving_to IS NOT NULL
    AND version IN (SELECT version FROM placements WHERE account_id = ANY($1::uuid[]) AND moving_to IS NOT NULL);

-- name: claim
-- Claim name $2 of kind $1 for holder $4 in cell $3, and return the claim that then stands. A claim of the same cell
-- keeps its holder, because that cell's database decides between its accounts, but counts as young again.
WITH made AS (
    INSERT INTO claims (kind, name, cell, holder) VALUES ($1, $2, $3, $4)
    ON CONFLICT (kind, name) DO UPDATE
        SET claimed_at = now()
        WHERE claims.cell = excluded.cell
    RETURNING kind, name, cell, holder
)
SELECT kind, name, cell, holder FROM made
UNION ALL
SELECT kind, name, cell, holder FROM claims
WHERE kind = $1 AND name = $2 AND NOT EXISTS (SELECT FROM made);

-- name: claim_many
-- Claim names $2 of kinds $1 for holders $4 in cell $3; names of other cells are left out.
INSERT INTO claims (kind, name, cell, holder)
SELECT DISTINCT ON (kind, name) kind, name, $3, holder
FROM unnest($1::text[], $2::text[], $4::uuid[]) AS claim (kind, name, holder)
ORDER BY kind, name
ON CONFLICT (kind, name) DO UPDATE SET holder = excluded.holder
WHERE claims.cell = excluded.cell AND claims.holder <> excluded.holder;

-- name: claimed
-- The claim of name $2 of kind $1.
SELECT kind, name, cell, holder FROM claims WHERE kind = $1 AND name = $2;

-- name: claims_of
-- At most $5 claims of cell $1 after ($2, $3) that are older than $4 seconds, in order.
SELECT kind, name, cell, holder FROM claims
WHERE cell = $1 AND (kind, name) > ($2, $3) AND claimed_at <= now() - make_interval(secs => $4)
ORDER BY kind, name LIMIT $5;

-- name: release
-- Release names $2 of kinds $1 if cell $3 still holds them by claims older than $4 seconds.
DELETE FROM claims USING unnest($1::text[], $2::text[]) AS gone (kind, name)
WHERE claims.kind = gone.kind AND claims.name = gone.name AND claims.cell = $3
    AND claims.claimed_at <= now() - make_interval(secs => $4);
