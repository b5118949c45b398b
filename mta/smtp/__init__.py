"""SMTP: `client` opens sessions to other mail servers; `server` is what all SMTP servers of Waybill share."""
