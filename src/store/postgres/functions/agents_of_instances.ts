/** A migration step: keeps the agents of instances in a table, and counts those of memberships. */
export const AGENTS_OF_INSTANCES = `
  -- Which instance hosts an agent. Without this table, a search would read the list of every instance. Triggers write it,
  -- so nodes of the previous version keep it right too. The step locks instances, so no row changes between the triggers
  -- and the INSERT of the rows that exist.
  CREATE TABLE instance_agents (
    agent_id text COLLATE "C" NOT NULL,
    instance_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (agent_id, instance_id)
  );
  CREATE FUNCTION note_agents() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    IF TG_OP <> 'INSERT' THEN
      DELETE FROM instance_agents WHERE instance_id = OLD.instance_id
        AND agent_id IN (SELECT agent FROM json_array_elements_text(OLD.agent_ids::json) AS former(agent));
    END IF;
    IF TG_OP <> 'DELETE' THEN
      INSERT INTO instance_agents (agent_id, instance_id)
        SELECT DISTINCT agent, NEW.instance_id FROM json_array_elements_text(NEW.agent_ids::json) AS present(agent);
    END IF;
    RETURN NULL;
  END $$;
  CREATE TRIGGER agents_come_and_go AFTER INSERT OR DELETE ON instances FOR EACH ROW EXECUTE FUNCTION note_agents();
  CREATE TRIGGER agents_change AFTER UPDATE OF agent_ids ON instances FOR EACH ROW
    WHEN (NEW.agent_ids <> OLD.agent_ids) EXECUTE FUNCTION note_agents();
  INSERT INTO instance_agents (agent_id, instance_id)
    SELECT DISTINCT agent, instance_id FROM instances, json_array_elements_text(agent_ids::json) AS present(agent);

  -- The length of the list, counted when the list is written: a page of meetings shows how many agents each meeting has.
  -- Null for rows that were written before this step.
  ALTER TABLE memberships ADD COLUMN agent_count integer;
  CREATE FUNCTION count_agents() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    NEW.agent_count := json_array_length(NEW.agent_ids::json);
    RETURN NEW;
  END $$;
  CREATE TRIGGER membership_is_counted BEFORE INSERT OR UPDATE OF agent_ids ON memberships FOR EACH ROW
    EXECUTE FUNCTION count_agents();
`;
