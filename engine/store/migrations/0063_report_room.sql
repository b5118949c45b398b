-- Reports that strangers send may not fill the disk (decision 0091).

-- The reports that had no effect are counted together with those that wait, and the oldest of them go first.
CREATE INDEX report_mails_without_effect ON report_mails (id) WHERE state IN ('ignored', 'unreadable');

-- Mail to `postmaster@` and `abuse@` of the service's own hosts is kept with the reports until a platform account is set.
ALTER TABLE report_mails DROP CONSTRAINT report_mails_purpose_check;
ALTER TABLE report_mails ADD CONSTRAINT report_mails_purpose_check
    CHECK (purpose IN ('bounce', 'feedback', 'dmarc', 'tls', 'unsubscribe', 'operator'));
