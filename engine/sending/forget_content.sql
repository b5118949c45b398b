-- fragment: content_forgotten
-- Deletes key and content of those `candidates` that have no delivery left and are not scheduled, or sets the time of
-- that if the content stays for some hours. `low` and `high` bound the ids for partition pruning. The arrays keep the
-- planner from reading all keys, or all bodies between the bounds.
ended AS MATERIALIZED (
    SELECT n.message_id FROM candidates n
    WHERE NOT EXISTS (SELECT 1 FROM queue q WHERE q.message_id = n.message_id)
      AND NOT EXISTS (SELECT 1 FROM schedules s WHERE s.message_id = n.message_id)
), later AS (
    UPDATE content_keys k SET due_at = clock_timestamp() + make_interval(hours => k.hours)
    WHERE k.message_id = ANY (ARRAY(SELECT message_id FROM ended)) AND k.hours > 0
), gone AS (
    DELETE FROM content_keys k WHERE k.message_id = ANY (ARRAY(SELECT message_id FROM ended)) AND k.hours = 0
    RETURNING k.message_id
)
DELETE FROM message_bodies b
WHERE b.message_id = ANY (ARRAY(SELECT message_id FROM gone)) AND b.message_id BETWEEN :low AND :high

-- name: forget_ended
-- Forget the content of those of `messages` that are final and do not retain it.
WITH candidates AS (SELECT unnest(:messages::uuid[]) AS message_id), :content_forgotten;

-- name: take_due
-- Delete at most $1 keys whose time has come, the longest due first; return their messages. Skips rows that another
-- worker holds.
DELETE FROM content_keys WHERE message_id = ANY (ARRAY(
    SELECT message_id FROM content_keys WHERE due_at <= (SELECT clock_timestamp())
    ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING message_id;

-- name: delete_bodies
-- Delete the content of the messages $1, whose ids lie between $2 and $3.
DELETE FROM message_bodies WHERE message_id = ANY($1::uuid[]) AND message_id BETWEEN $2 AND $3;
