-- The `traceparent` of a message (W3C Trace Context) as its sender gave it or acceptance began it; null without one. Its
-- queue rows repeat it, so that delivery reads no further row.
ALTER TABLE messages ADD COLUMN traceparent text;
ALTER TABLE queue ADD COLUMN traceparent text;
