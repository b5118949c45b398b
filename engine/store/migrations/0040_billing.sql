-- Billing: subscriptions, checkouts, events of payment providers, invoices, and the history of all of it.

-- The subscription of an account that pays; accounts without a row have the Free plan or one that the operator set.
-- Amounts are in minor units of `currency`, without tax. See engine/areas/billing/types.py.
CREATE TABLE subscriptions (
    account_id           uuid PRIMARY KEY REFERENCES accounts,
    plan                 text NOT NULL,
    status               text NOT NULL CHECK (status IN ('active', 'past_due', 'paused', 'agreement')),
    billing_interval     text NOT NULL CHECK (billing_interval IN ('month', 'year')),
    currency             text NOT NULL,
    amount               bigint NOT NULL CHECK (amount >= 0),
    anchor               timestamptz NOT NULL,       -- the start of period 0
    number               integer NOT NULL CHECK (number >= 0),
    credit               bigint NOT NULL CHECK (credit >= 0),
    cancel_at_period_end boolean NOT NULL,
    pause_at_period_end  boolean NOT NULL,
    next_paid            boolean NOT NULL,
    pending_plan         text,
    pending_interval     text,
    pending_amount       bigint,
    paid_at              timestamptz,
    look_at              timestamptz,                -- when the worker next looks whether a period has ended
    provider             text,
    reference            text,                       -- the provider's name for the payer, to be charged for renewals
    updated_at           timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX subscriptions_due ON subscriptions (look_at) WHERE look_at IS NOT NULL;

-- Who is named on an account's invoices.
CREATE TABLE billing_profiles (
    account_id uuid PRIMARY KEY REFERENCES accounts,
    legal_name text NOT NULL,
    country    text NOT NULL,
    address    text,
    tax_id     text,
    email      text,
    updated_at timestamptz NOT NULL
);

-- Offers that were opened at a payment provider; what is compared with the payment. They outlive the account's erasure
-- with the invoices: a payment may still arrive.
CREATE TABLE checkouts (
    id         uuid PRIMARY KEY,
    account_id uuid NOT NULL,
    plan       text NOT NULL,
    billing_interval text NOT NULL,
    currency   text NOT NULL,
    price      bigint NOT NULL,                      -- of the plan, without tax
    credit     bigint NOT NULL,                      -- for unused time, taken off the price
    tax        bigint NOT NULL,
    tax_rate   text NOT NULL,
    reverse_charge boolean NOT NULL,
    amount     bigint NOT NULL,                      -- to be paid
    buyer      jsonb NOT NULL,                       -- the profile at that time
    status     text NOT NULL CHECK (status IN ('open', 'paid', 'failed', 'abandoned', 'replaced')),
    provider   text NOT NULL,
    url        text,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE UNIQUE INDEX checkouts_open ON checkouts (account_id) WHERE status = 'open';

-- Events of payment providers, each once; written in the transaction of their effect.
CREATE TABLE provider_events (
    provider    text NOT NULL,
    event_id    text NOT NULL,
    type        text NOT NULL,
    account_id  uuid,
    effect      text NOT NULL,                       -- `applied`, or why it changed nothing
    created_at  timestamptz NOT NULL,                -- by the provider's clock
    received_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (provider, event_id)
);

-- Requests to charge a renewal, each period once; retried until the provider took them.
CREATE TABLE renewal_charges (
    account_id   uuid NOT NULL REFERENCES accounts,
    period_start timestamptz NOT NULL,
    id           uuid NOT NULL UNIQUE,
    plan         text NOT NULL,
    billing_interval text NOT NULL,
    currency     text NOT NULL,
    price        bigint NOT NULL,
    credit       bigint NOT NULL,
    tax          bigint NOT NULL,
    tax_rate     text NOT NULL,
    reverse_charge boolean NOT NULL,
    amount       bigint NOT NULL,
    buyer        jsonb NOT NULL,
    paid         boolean NOT NULL DEFAULT false,
    tries        integer NOT NULL DEFAULT 0,
    due_at       timestamptz,                        -- null: the provider has taken the request
    PRIMARY KEY (account_id, period_start)
);
CREATE INDEX renewal_charges_due ON renewal_charges (due_at) WHERE due_at IS NOT NULL;

-- Issued invoices and credit notes, never changed but for `status` and the PDF's first rendering. They are kept ten
-- years and outlive the account.
CREATE TABLE invoices (
    id           uuid PRIMARY KEY,
    account_id   uuid NOT NULL,
    number       text NOT NULL UNIQUE,
    kind         text NOT NULL CHECK (kind IN ('invoice', 'credit_note')),
    status       text NOT NULL CHECK (status IN ('paid', 'refunded')),
    issued_at    timestamptz NOT NULL,
    period_start timestamptz NOT NULL,
    period_end   timestamptz NOT NULL,
    plan         text NOT NULL,
    billing_interval  text NOT NULL,
    currency     text NOT NULL,
    subtotal     bigint NOT NULL,
    tax          bigint NOT NULL,
    total        bigint NOT NULL,
    tax_rate     text NOT NULL,                      -- such as 0.19
    reverse_charge boolean NOT NULL,
    lines        jsonb NOT NULL,
    seller       jsonb NOT NULL,
    buyer        jsonb NOT NULL,
    corrects     text,                               -- the number of the invoice that a credit note corrects
    payment      uuid,                               -- the checkout or renewal charge that paid it
    pdf          bytea
);
CREATE INDEX invoices_by_account ON invoices (account_id, id);
CREATE INDEX invoices_by_payment ON invoices (payment) WHERE payment IS NOT NULL;
CREATE INDEX invoices_by_corrected ON invoices (corrects) WHERE corrects IS NOT NULL;

-- The last number of each year, drawn in the transaction that issues: a rollback leaves no gap.
CREATE TABLE invoice_numbers (
    year   integer PRIMARY KEY,
    latest integer NOT NULL
);

-- The billing history of each account: a hash chain like the account log (engine/ledger/billing_history.py).
CREATE TABLE billing_events (
    account_id  uuid NOT NULL,
    seq         bigint NOT NULL,
    type        text NOT NULL,
    occurred_at timestamptz NOT NULL,
    payload     text NOT NULL,
    hash        bytea NOT NULL,
    PRIMARY KEY (account_id, seq)
);
CREATE TABLE billing_heads (
    account_id uuid PRIMARY KEY,
    seq        bigint NOT NULL,
    hash       bytea NOT NULL
);

-- Unsigned refund notices by the checkout or invoice that they name and UTC day: only the first ten are recorded.
CREATE TABLE refund_notices (
    subject uuid NOT NULL,
    day     date NOT NULL,
    notices integer NOT NULL,
    PRIMARY KEY (subject, day)
);

-- The record history of a larger plan that an account had until lately: it holds until `until`.
CREATE TABLE kept_retentions (
    account_id uuid PRIMARY KEY REFERENCES accounts,
    days       integer NOT NULL,
    until      timestamptz NOT NULL
);
