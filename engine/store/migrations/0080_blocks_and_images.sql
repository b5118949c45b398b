-- Emails made of blocks, stored beside the HTML and text that the service makes of them, and the images in them.
-- Additive. `json` keeps the text of a document, so that an unchanged one is recognised.
ALTER TABLE template_versions ADD COLUMN blocks json;
ALTER TABLE broadcasts ADD COLUMN blocks json;

-- An image as it is served: re-encoded, so the same upload gives the same bytes and is stored once per account.
CREATE TABLE images (
    account_id   uuid NOT NULL REFERENCES accounts,
    id           uuid NOT NULL,
    sha256       bytea NOT NULL,
    filename     text NOT NULL,
    content_type text NOT NULL,
    width        integer NOT NULL,
    height       integer NOT NULL,
    size_bytes   integer NOT NULL,
    content      bytea NOT NULL,
    created_at   timestamptz NOT NULL,
    PRIMARY KEY (account_id, id),
    UNIQUE (account_id, sha256)
);
-- Compressed already: stored apart, as it is.
ALTER TABLE images ALTER COLUMN content SET STORAGE EXTERNAL;
-- The public address of an image names its content, whichever accounts have it.
CREATE INDEX images_by_content ON images (sha256);
