-- Reports that strangers send have limits per domain and day (decision 0091).

-- How many rows of sums a report brought, and the reports of a domain by their arrival.
ALTER TABLE dmarc_reports ADD COLUMN stored_rows integer NOT NULL DEFAULT 0;
CREATE INDEX dmarc_reports_by_arrival ON dmarc_reports (domain_id, received_at) INCLUDE (stored_rows);
ALTER TABLE received_tls_reports ADD COLUMN stored_rows integer NOT NULL DEFAULT 0;
CREATE INDEX received_tls_reports_by_arrival ON received_tls_reports (domain_id, received_at) INCLUDE (stored_rows);

-- Reports about domains are taken apart from those about mail.
DROP INDEX report_mails_due;
CREATE INDEX report_mails_due ON report_mails ((purpose IN ('dmarc', 'tls')), due_at) WHERE state = 'waiting';

-- The reports that were applied count in the room of all reports.
CREATE INDEX report_mails_applied ON report_mails (id) WHERE state = 'applied';
