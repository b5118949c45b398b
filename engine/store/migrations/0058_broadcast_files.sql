-- The files of a broadcast go some weeks after its end; what they were stays readable.

ALTER TABLE broadcasts ADD COLUMN removed_files text;  -- JSON as in replies of the API, without contents; null: none removed

CREATE INDEX broadcasts_with_files ON broadcasts (finished_at) WHERE attachments IS NOT NULL AND finished_at IS NOT NULL;
CREATE INDEX broadcasts_unfinished ON broadcasts (account_id)
    WHERE status IN ('draft', 'in_review', 'scheduled', 'sending', 'paused');
