-- Incidents that operators write for the public status page. A title names one open incident.
CREATE TABLE status_incidents (
    id        uuid PRIMARY KEY,
    title     text NOT NULL,
    opened_at timestamptz NOT NULL,
    closed_at timestamptz
);
CREATE UNIQUE INDEX status_incidents_open ON status_incidents (title) WHERE closed_at IS NULL;

CREATE TABLE status_updates (
    id          uuid PRIMARY KEY,
    incident_id uuid NOT NULL REFERENCES status_incidents ON DELETE CASCADE,
    written_at  timestamptz NOT NULL,
    message     text NOT NULL
);
CREATE INDEX status_updates_by_incident ON status_updates (incident_id, id);
