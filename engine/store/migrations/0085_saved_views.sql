-- Filters of a list of the console under a name. A view belongs to the person who saved it; a shared one is shown to all
-- people of the account.
CREATE TABLE saved_views (
    id         uuid PRIMARY KEY,
    account_id uuid NOT NULL REFERENCES accounts,
    user_id    uuid NOT NULL REFERENCES users ON DELETE CASCADE,
    page       text NOT NULL,
    name       text NOT NULL,
    query      text NOT NULL,                        -- as in the address of the page: status=bounced&tag=receipt
    shared     boolean NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE INDEX saved_views_by_account ON saved_views (account_id, user_id);
CREATE INDEX saved_views_by_user ON saved_views (user_id);
