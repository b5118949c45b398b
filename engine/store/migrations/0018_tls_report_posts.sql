-- TLS reports that go to an https destination: one row for each that has not taken its report yet.
CREATE TABLE tls_report_posts (
    day     date NOT NULL,
    domain  text NOT NULL,
    url     text NOT NULL,
    tries   integer NOT NULL DEFAULT 0,
    next_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL,                    -- given up then
    PRIMARY KEY (day, domain, url),
    FOREIGN KEY (day, domain) REFERENCES tls_reports ON DELETE CASCADE
);
CREATE INDEX tls_report_posts_due ON tls_report_posts (next_at);
