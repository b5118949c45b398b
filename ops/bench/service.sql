-- name: any_queued
-- Whether a delivery is pending: asked many times a second, so nothing is counted.
SELECT EXISTS (SELECT 1 FROM queue) AS any_queued;

-- name: hold_queue
-- Nobody reads or writes the queue until this transaction ends.
LOCK TABLE queue IN ACCESS EXCLUSIVE MODE;
