-- Times from `accepted` to `delivered` in the row of their group instead of one row for each bucket: reading and adding
-- to them took most of the time of delivery analytics.
--
-- `times` is packed as engine.areas.analytics.histogram describes: bucket (2 octets) and samples (4 octets), repeated.
ALTER TABLE delivery_groups ADD COLUMN times bytea NOT NULL DEFAULT '';
UPDATE delivery_groups g SET times = packed.times FROM (
    SELECT group_id, string_agg(int2send(bucket) || int4send(samples), '' ORDER BY bucket)
    FROM delivery_times WHERE samples <> 0 GROUP BY group_id
) AS packed (group_id, times) WHERE g.id = packed.group_id;
DROP TABLE delivery_times;

-- No other table names a group by number any more.
ALTER TABLE delivery_groups
    DROP COLUMN id,
    DROP CONSTRAINT delivery_groups_account_id_tag_day_domain_stream_from_domai_key,
    ADD PRIMARY KEY (account_id, tag, day, domain, stream, from_domain);
