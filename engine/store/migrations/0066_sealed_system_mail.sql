-- Messages of these sources are sealed: nobody but their recipient reads content and address (decisions 0055 and 0092).
CREATE FUNCTION is_sealed_source(source text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN source IN ('verification', 'system');
