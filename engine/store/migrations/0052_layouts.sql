-- Layouts of templates: named frames with versions of their own; a template version names the layout version it stands in.
-- Additive: processes of the version before ignore layouts, and find no content in a version that a changed layout
-- published. So create layouts after the upgrade of all processes.

-- As with templates, a deleted layout keeps its row and its versions: versions of templates still stand in them.
CREATE TABLE layouts (
    account_id uuid NOT NULL REFERENCES accounts,
    slug       text NOT NULL,
    name       text,
    version    integer NOT NULL,                     -- the latest; versions count on when a slug is used again
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    deleted_at timestamptz,
    PRIMARY KEY (account_id, slug)
);

CREATE TABLE layout_versions (
    account_id uuid NOT NULL,
    slug       text NOT NULL,
    version    integer NOT NULL CHECK (version >= 1),
    html       text NOT NULL,
    text       text,
    variables  jsonb NOT NULL DEFAULT '[]',
    created_at timestamptz NOT NULL,
    PRIMARY KEY (account_id, slug, version),
    FOREIGN KEY (account_id, slug) REFERENCES layouts
);

CREATE FUNCTION refuse_layout_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'version % of layout % is published and does not change', OLD.version, OLD.slug;
END $$;
CREATE TRIGGER layout_versions_stay BEFORE UPDATE ON layout_versions
    FOR EACH ROW EXECUTE FUNCTION refuse_layout_change();

-- A version that a change of the layout published has the HTML, text and variables of the version `content_version`.
ALTER TABLE template_versions
    ADD COLUMN layout          text,
    ADD COLUMN layout_version  integer,
    ADD COLUMN content_version integer,
    ADD CHECK ((layout IS NULL) = (layout_version IS NULL)),
    ADD CHECK (content_version < version),
    ADD FOREIGN KEY (account_id, layout, layout_version) REFERENCES layout_versions;
