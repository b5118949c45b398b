-- Webhook endpoints that get the events of some domains and streams only, and headers of their own in each post.

ALTER TABLE webhooks
    ADD COLUMN domains text[] NOT NULL DEFAULT '{}',       -- sender domains; empty: all
    ADD COLUMN streams text[] NOT NULL DEFAULT '{}',       -- slugs; empty: all
    ADD COLUMN filtered boolean GENERATED ALWAYS AS (cardinality(domains) + cardinality(streams) > 0) STORED,
    ADD COLUMN header_names text[] NOT NULL DEFAULT '{}',
    ADD COLUMN sealed_headers bytea;                       -- JSON object of names and values; null: none

-- Whether an event passes the filters of an endpoint that has some: the message that it concerns is from one of the domains
-- and on one of the streams. The statement that stores a message writes both into the message's first event, because the
-- message is not visible yet. With domains alone, events about the domains themselves pass too. An event of a message that
-- tells neither, written by a process of an earlier version, passes.
CREATE FUNCTION webhook_fits(domains text[], streams text[], type text, message uuid, payload text) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    detail jsonb;
    about_domain text;
    about_stream text;
BEGIN
    IF type IN ('domain.verified', 'domain.failed') THEN
        RETURN cardinality(streams) = 0 AND (payload::jsonb -> 'detail' ->> 'name') = ANY (domains);
    END IF;
    IF message IS NULL THEN
        RETURN false;
    END IF;
    IF type IN ('accepted', 'scheduled') THEN
        detail := payload::jsonb -> 'detail';
        about_domain := detail ->> 'from_domain';
        about_stream := detail ->> 'stream';
    END IF;
    IF about_stream IS NULL THEN
        SELECT m.from_domain, m.stream INTO about_domain, about_stream FROM messages m WHERE m.id = message;
        IF NOT FOUND THEN
            RETURN true;
        END IF;
    END IF;
    RETURN (cardinality(domains) = 0 OR about_domain = ANY (domains))
       AND (cardinality(streams) = 0 OR about_stream = ANY (streams));
END;
$$;
