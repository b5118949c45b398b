-- name: list_tables
-- All logged tables of the schema (of a partitioned table its partitions, with the parent's name), their columns in
-- order without generated ones, and their size on disk.
SELECT c.relname::text AS name, p.relname::text AS parent,
       ARRAY(SELECT a.attname::text FROM pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
             ORDER BY a.attnum) AS columns,
       pg_table_size(c.oid) AS size_bytes
FROM pg_class c
LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
LEFT JOIN pg_class p ON p.oid = i.inhparent
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relpersistence = 'p'
ORDER BY coalesce(p.relname, c.relname), c.relname;

-- name: list_references
-- Foreign keys between tables.
SELECT DISTINCT f.relname::text AS name, t.relname::text AS target
FROM pg_constraint k JOIN pg_class f ON f.oid = k.conrelid JOIN pg_class t ON t.oid = k.confrelid
WHERE k.contype = 'f' AND f.relnamespace = current_schema()::regnamespace AND f.oid <> t.oid;

-- name: applied_migrations
-- The applied migrations.
SELECT number, name, digest FROM schema_migrations ORDER BY number;

-- name: own_sessions
-- Processes of Waybill that are connected to this database, except $1; in a schema of one's own, as the same user.
SELECT DISTINCT application_name AS name FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'waybill %'
  AND application_name <> $1 AND (current_schema() = 'public' OR usename = current_user) ORDER BY 1;
