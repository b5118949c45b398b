-- Templates and their versions; streams that end; the order in which suppressions are listed.

-- A deleted template keeps its row and its versions, so that (slug, version) never names two contents.
CREATE TABLE templates (
    account_id uuid NOT NULL REFERENCES accounts,
    slug       text NOT NULL,
    name       text,
    version    integer NOT NULL,                     -- the latest; versions count on when a slug is used again
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    deleted_at timestamptz,
    PRIMARY KEY (account_id, slug)
);

CREATE TABLE template_versions (
    account_id uuid NOT NULL,
    slug       text NOT NULL,
    version    integer NOT NULL CHECK (version >= 1),
    subject    text,
    html       text,
    text       text,
    variables  jsonb NOT NULL DEFAULT '[]',
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (account_id, slug, version),
    FOREIGN KEY (account_id, slug) REFERENCES templates
);

-- A published version never changes, whatever a later statement tries.
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'version % of template % is published and does not change', OLD.version, OLD.slug;
END $$;
CREATE TRIGGER template_versions_stay BEFORE UPDATE ON template_versions
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- A deleted stream keeps its row: cursors that name it stay good.
ALTER TABLE streams ADD COLUMN deleted_at timestamptz;

CREATE INDEX suppressions_by_time ON suppressions (account_id, created_at DESC, address DESC);
