-- The limits of a plan that an agreement with the account raises (engine.base.plans.AgreedCaps), by their names, except
-- the monthly emails (accounts.monthly_cap) and the retention (accounts.retention_days).
ALTER TABLE accounts ADD COLUMN agreed_caps jsonb CHECK (jsonb_typeof(agreed_caps) = 'object');

-- A sub-account has its parent's plan with the limits that were agreed on.
CREATE OR REPLACE FUNCTION follow_parents_plan() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE accounts SET plan = NEW.plan, agreed_caps = NEW.agreed_caps
    WHERE parent_id = NEW.id AND (plan, agreed_caps) IS DISTINCT FROM (NEW.plan, NEW.agreed_caps);
    RETURN NULL;
END $$;
DROP TRIGGER sub_accounts_follow ON accounts;
CREATE TRIGGER sub_accounts_follow AFTER UPDATE OF plan, agreed_caps ON accounts
    FOR EACH ROW WHEN ((OLD.plan, OLD.agreed_caps) IS DISTINCT FROM (NEW.plan, NEW.agreed_caps))
    EXECUTE FUNCTION follow_parents_plan();
