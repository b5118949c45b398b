-- The notices of an account that a person has seen or dismissed. The notices themselves are derived from the present state;
-- a mark goes when its notice has, or with the person's membership.
CREATE TABLE notice_marks (
    account_id uuid NOT NULL,
    user_id    uuid NOT NULL,
    notice     text NOT NULL,
    dismissed  boolean NOT NULL,
    marked_at  timestamptz NOT NULL,
    PRIMARY KEY (account_id, user_id, notice),
    FOREIGN KEY (account_id, user_id) REFERENCES members (account_id, user_id) ON DELETE CASCADE
);
