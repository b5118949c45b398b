-- The worst state of each component of the installation in each quarter hour, for the public status page. The worker
-- writes about four rows per quarter hour and deletes them after 90 days; a quarter hour without a row was not measured.
CREATE TABLE status_quarters (
    component text NOT NULL,
    quarter   timestamptz NOT NULL,                  -- its begin
    state     smallint NOT NULL CHECK (state BETWEEN 0 AND 2),  -- 0 up, 1 degraded, 2 down
    PRIMARY KEY (quarter, component)
);
