-- Return paths under the customer's own domain: `<label>.<domain>`, a CNAME to the service's bounce domain. Constant
-- defaults rewrite no row.
ALTER TABLE domains
    ADD COLUMN return_path_label  text NOT NULL DEFAULT 'bounce',
    ADD COLUMN return_path        text NOT NULL DEFAULT 'pending' CHECK (return_path IN ('pending', 'verified', 'failed')),
    ADD COLUMN return_path_misses smallint NOT NULL DEFAULT 0;
