-- The origins of web pages that may read the API with this key (CORS); null: none. Keys with read scopes alone have any.
ALTER TABLE api_keys ADD COLUMN allowed_origins text[];
