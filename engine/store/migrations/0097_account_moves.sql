-- Accounts that move to another cell (decision 0118). While an account moves it has the status `moving`, beside the one
-- that it gets back; a change of its status that does not know of the move fails.
ALTER TABLE accounts DROP CONSTRAINT accounts_status_check;
ALTER TABLE accounts
    ADD CONSTRAINT accounts_status_check CHECK (status IN ('active', 'suspended', 'closing', 'moving')),
    ADD COLUMN status_before_move text,
    ADD CONSTRAINT accounts_moving CHECK ((status = 'moving') = (status_before_move IS NOT NULL));

-- Where the log of an account was closed. Every transaction that could lose a write appends to the log, so this one
-- condition, in the row that each of them writes anyway, keeps all of them from committing after the copy began.
ALTER TABLE account_heads
    ADD COLUMN closed_at_seq bigint,
    ADD CONSTRAINT account_heads_closed CHECK (closed_at_seq IS NULL OR seq = closed_at_seq);

-- The accounts of this cell that are on their way: leaving it, or arriving. Their deliveries, posts and jobs wait.
-- `unit` is the account that the move was ordered for; the accounts that share people with it move together.
CREATE TABLE account_moves (
    account_id uuid PRIMARY KEY,
    unit       uuid NOT NULL,
    direction  text NOT NULL CHECK (direction IN ('leaving', 'arriving')),
    other_cell text NOT NULL,
    people     uuid[] NOT NULL DEFAULT '{}',         -- of the unit, in the row of `unit`
    began_at   timestamptz NOT NULL DEFAULT now()
);

-- What each delivering process still has in memory of the accounts that leave.
CREATE TABLE account_move_drains (
    member_id  uuid NOT NULL,
    account_id uuid NOT NULL,
    in_hand    integer NOT NULL,
    seen_at    timestamptz NOT NULL,
    PRIMARY KEY (member_id, account_id)
);
