-- The requests to the API of the last days, for their callers; partitioned by the UTC day of the id (see
-- engine/store/partitions.py). Nothing refers to a row, so it has no primary key.
CREATE TABLE api_requests (
    id           uuid NOT NULL,
    account_id   uuid NOT NULL,
    key_id       uuid,                               -- of the API key, null for a signed-in person
    user_id      uuid,
    method       text NOT NULL,
    path         text NOT NULL,
    status       smallint NOT NULL,
    microseconds integer NOT NULL,
    request_id   text NOT NULL,
    error_type   text
) PARTITION BY RANGE (id);
CREATE INDEX api_requests_by_account ON api_requests (account_id, id);
CREATE INDEX api_requests_failed ON api_requests (account_id, id) WHERE status >= 400;
