-- name: vacuum_contacts
-- Vacuum now, so that autovacuum does not run during a measurement.
VACUUM (ANALYZE) contacts, contact_lists, contact_list_members;
