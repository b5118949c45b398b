-- name: merge_trigrams
-- Merge the pending entries of the search index into it; returns the number of pages merged.
SELECT gin_clean_pending_list('contacts_by_trigram') AS pages;

-- name: forget_expired
-- Delete the links of double opt-in mail that expired before $1.
DELETE FROM contact_confirmations WHERE expires_at < $1;
