-- While a broadcast of 100,000 was accepted, the automatic vacuum vacuumed and analysed the tables that it fills every 10 s,
-- and other mail waited for a processor (decision 0085). New partitions get the same parameters from engine.store.partitions.

DO $$
DECLARE
    part regclass;
BEGIN
    FOR part IN
        SELECT inhrelid::regclass FROM pg_inherits
        WHERE inhparent IN ('messages'::regclass, 'message_bodies'::regclass, 'recipients'::regclass, 'events'::regclass)
    LOOP
        EXECUTE format('ALTER TABLE %s SET (autovacuum_analyze_threshold = 20000, autovacuum_vacuum_insert_threshold = 50000)',
                       part);
    END LOOP;
END
$$;

-- A broadcast changes each row of its recipients two or three times; a vacuum reads the table's three indexes.
ALTER TABLE broadcast_recipients SET (autovacuum_vacuum_scale_factor = 0.3, autovacuum_analyze_threshold = 20000);
