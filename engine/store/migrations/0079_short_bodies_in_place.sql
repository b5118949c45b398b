-- A message of up to 4 KB is kept in its row: apart (TOAST) it was two or three rows more, each with an index entry, to
-- write and to delete. New partitions get the same parameter from engine.store.partitions.

DO $$
DECLARE
    part regclass;
BEGIN
    FOR part IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'message_bodies'::regclass
    LOOP
        EXECUTE format('ALTER TABLE %s SET (toast_tuple_target = 4064)', part);
    END LOOP;
END
$$;
