/**
 * Accepting and settling as functions of the database: a batch is one statement and one commit, and no transaction
 * stays open across the network. In READ COMMITTED each statement of a function has a snapshot of its own. So the
 * statements after a lock see everything that was committed before the lock was taken.
 *
 * Batches come as arrays, one for each column. A plan may be from a time when the table was empty, but it must never
 * read the whole table. So a statement looks into a table once for each row, or once for all keys of the batch (ANY).
 * LATERAL with OFFSET 0 makes it look once for each row, because the planner then has no other way to join.
 */
import { IDEMPOTENCY_MS } from '../../contract/messages.ts';
import { REMOVAL } from '../locks.ts';
import { CHANNEL } from '../cluster/notifications.ts';
import { NO_ORIGINS, type OriginParts, ORIGINS } from './who_says.ts';

/** The SQLSTATE when the database does not know a run: see the table `runs` in first_step.ts. */
export const RUN_UNKNOWN = 'CV001';
/** The most batches of a run that are kept. Nodes ask only for the last batch. */
const BATCHES_KEPT = 100;

/**
 * The agents of `r` that get the targeted message at `i.place`: see src/domain/agents_to_notify.ts. The agents of `r`,
 * the targets and the result are lists as JSON text. This is not a function of its own, because the call would take
 * longer than the work.
 */
const AGENTS_TO_NOTIFY = `
  SELECT coalesce('[' || string_agg(agent.value::text, ',' ORDER BY agent.place) || ']', '[]')
  FROM json_array_elements(r.agent_ids::json) WITH ORDINALITY AS agent(value, place)
  WHERE agent.value::text IN (SELECT target.value::text FROM json_array_elements(targets[i.place]::json) AS target(value))`;

/** The statement that creates meetings that do not exist, in the order in which every node locks them. */
function makeMeetings(condition: string): string {
  return `
    INSERT INTO meetings (meeting_id, last_seq, created_at, last_activity_at)
      SELECT w.meeting_id, 0, w.created_at, w.created_at
      FROM unnest(meeting_ids, created_ats, hints) WITH ORDINALITY AS w(meeting_id, created_at, hint, place) WHERE ${condition} ORDER BY w.place
      ON CONFLICT (meeting_id) DO NOTHING;`;
}

/**
 * Locks the meetings and does not write them: first_step.ts says why, at the table `meetings`. The next statements see
 * everything that was committed before this lock was taken.
 */
const LOCK_MEETINGS = `
    SELECT array_agg(g.last_seq ORDER BY w.place) INTO last_seqs
      FROM unnest(meeting_ids) WITH ORDINALITY AS w(meeting_id, place)
        CROSS JOIN LATERAL (SELECT g.last_seq FROM meetings g WHERE g.meeting_id = w.meeting_id OFFSET 0 FOR UPDATE) g;`;

/** How a message with an Idempotency-Key finds an earlier message with the same key, and how its key is stored. */
interface Keys {
  /** The parameters of the function for each message, apart from its key. */
  parameters: string;
  /** Lists that follow the list of keys, and the names of their columns. Each list is a column of an item `i`. */
  lists: string;
  names: string;
  /** The condition for rows `k` of earlier messages with the key of `i`. */
  same_key: string;
  /** The end of a look-up of these rows: `latest` finds the row that counts, `any` finds whether there is one. */
  latest: string;
  any: string;
  declared: string;
  /** Chooses the names under which keys are stored. */
  choose: string;
  /** The names under which keys are stored, in the order of the messages' places. */
  stored: string;
  columns: string;
  values: string;
  updates: string;
}

/** A key belongs to its meeting. */
const OF_MEETING: Keys = {
  parameters: '',
  lists: '',
  names: '',
  same_key: 'k.meeting_id = meeting_ids[i.of_meeting] AND k.key = i.key',
  latest: 'OFFSET 0',
  any: 'OFFSET 0',
  declared: '',
  choose: '',
  stored: 'keys',
  columns: '',
  values: '',
  updates: '',
};

/**
 * A key belongs to its meeting and its sender. Nodes of the previous version share the table. Those nodes find a key by
 * the key alone, and store no sender with it. So a key is stored under its own name, where those nodes find it. When
 * another sender already uses that name, the key is stored under sender and key together. No other key has this joined
 * name, because no key contains a line feed.
 */
const OF_SENDER: Keys = {
  parameters: ' senders text[],',
  lists: ', senders',
  names: ', sender',
  same_key: `k.meeting_id = meeting_ids[i.of_meeting] AND k.key IN (i.key, i.sender || E'\\n' || i.key) AND (k.sender IS NULL OR k.sender = i.sender)`,
  latest: 'ORDER BY k.created_at DESC LIMIT 1',
  any: 'LIMIT 1',
  declared: `
    key_names text[];`,
  choose: `
      SELECT array_agg(CASE WHEN i.key IS NOT NULL AND (
            EXISTS (SELECT 1 FROM idempotency_keys k WHERE k.meeting_id = meeting_ids[i.of_meeting]
              AND k.key IN (i.key, i.sender || E'\\n' || i.key) AND (k.sender <> i.sender OR k.key <> i.key) OFFSET 0)
            OR i.rank > 1 AND NOT EXISTS (SELECT 1 FROM idempotency_keys k WHERE k.meeting_id = meeting_ids[i.of_meeting]
              AND k.key = i.key AND k.sender = i.sender OFFSET 0))
          THEN i.sender || E'\\n' || i.key ELSE i.key END ORDER BY i.place) INTO key_names
        FROM (SELECT u.*, row_number() OVER (PARTITION BY u.of_meeting, u.key, u.is_new ORDER BY u.place) AS rank
          FROM unnest(of_meetings, senders, keys, is_new) WITH ORDINALITY AS u(of_meeting, sender, key, is_new, place)) i;`,
  stored: 'key_names',
  columns: ', sender',
  values: ', senders[n.place]',
  updates: ', sender = excluded.sender',
};

/** Which messages wake a membership: see src/domain/agents_to_notify.ts. */
interface WakeParts {
  /** The column of the membership `s`. */
  column: string;
  /** The branch for a message at `i.place` that does not wake the membership `r`: it notifies none of its agents. */
  asleep: string;
}

/** Earlier versions wake every membership. */
const WAKES_ALL: WakeParts = { column: '', asleep: '' };

/** When no message of a batch has a sender, the list from_agents is empty. Then from_agents[i.place] is always null. */
const WAKES_SOME: WakeParts = {
  column: ', s.wake',
  asleep: `WHEN r.wake <> 'all' AND (r.wake = 'people' AND from_agents[i.place] IS NOT NULL
            OR r.wake = 'targeted' AND (targets[i.place] IS NULL OR targets[i.place] = '[]')) THEN '[]'
            `,
};

/** The trace of each message. */
interface TraceParts {
  parameters: string;
  columns: string;
  values: string;
}

/** Earlier versions store no trace. */
const NO_TRACES: TraceParts = { parameters: '', columns: '', values: '' };

/** When no message of a batch has a trace, the list traces is empty. Then traces[n.place] is always null. */
const TRACES: TraceParts = { parameters: ' traces text[],', columns: ', trace', values: ', traces[n.place]' };

/**
 * Makes a SELECT for the messages of `items` for which `condition` holds: those whose key was used before. It returns
 * one row of the result, which has the stored values of these messages.
 */
function repeatedKeys({ same_key, latest }: Keys, origin: OriginParts, items: string, condition: string): string {
  return `
        SELECT json_agg(i.place)::text, json_agg(k.message_no)::text, json_agg(k.seq)::text, json_agg(k.deliveries_queued)::text, json_agg(k.accepted_at)::text,
          NULL::text, NULL::text, json_agg(k.fingerprint)::text${origin.of_repeated}
        FROM ${items}
          CROSS JOIN LATERAL (SELECT * FROM idempotency_keys k WHERE ${same_key} ${latest}) k
        WHERE ${condition} HAVING count(*) > 0`;
}

/**
 * Stores a batch. All nodes sort the meetings in the same order, and lock them in this order. A message names its
 * meeting by the place of the meeting in this order. When several messages have the same key in a meeting, the caller
 * sends only the first.
 *
 * A hint is a seq of the meeting that the node knows, or null. A hint changes the cost and never the result.
 *
 * A batch may arrive again because its result was lost. Then the function returns the stored result: see the table
 * batches.
 *
 * When the batch is committed, the database notifies the other nodes, if there are any, of the numbers of the batch.
 * Each of them reads its part of the batch: see change_reader.ts. A NOTIFY holds a lock of the whole server until its
 * commit is done, so nodes commit their batches one after the other. Under load batches are large, so there are few
 * commits.
 *
 * A row of the result stands for several messages. Its columns are the JSON text of lists, with an item for each
 * message or for each of their deliveries. A row for each item would cost more, here and for the reader. There is one
 * row for messages that were stored, and one with fingerprints for messages whose key was used before.
 */
function acceptMessages(name: string, of: Keys, origin: OriginParts, wake = WAKES_ALL, trace = NO_TRACES): string {
  return `
  CREATE FUNCTION ${name}(
    my_run_no bigint, my_batch_no bigint,
    meeting_ids text[], created_ats bigint[], counts bigint[], hints bigint[],
    of_meetings int[], wall_ats bigint[], expire_ats bigint[], targets text[], timestamps text[], texts text[],${origin.parameters}${trace.parameters}
    has_keys boolean, keys text[],${of.parameters} fingerprints text[],
    teller text, my_node_id text
  ) RETURNS TABLE (
    places text, message_nos text, seqs text, queued_counts text, accepted_ats text,
    instance_ids text, agent_lists text, former_fingerprints text${origin.result}
  ) LANGUAGE plpgsql AS $$
  #variable_conflict use_column
  DECLARE
    batch batches%ROWTYPE;
    is_new boolean[];
    new_counts bigint[] := counts;
    last_seqs bigint[];
    former_seqs bigint[];${of.declared}${origin.declared}
  BEGIN
    -- A batch that is sent again waits here until the first try has ended.
    PERFORM 1 FROM runs WHERE run_no = my_run_no FOR UPDATE;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'the run % is not known', my_run_no USING ERRCODE = '${RUN_UNKNOWN}';
    END IF;
    SELECT * INTO batch FROM batches WHERE run_no = my_run_no ORDER BY batch_no DESC LIMIT 1;
    IF batch.batch_no > my_batch_no THEN
      RETURN;
    END IF;
    IF batch.batch_no = my_batch_no THEN
      RETURN QUERY
        WITH stored AS MATERIALIZED (
          SELECT nth.place, m.*
          FROM (SELECT flag.place, row_number() OVER (ORDER BY flag.place) AS nth
                FROM unnest(string_to_array(batch.stored, NULL)) WITH ORDINALITY AS flag(stored, place) WHERE flag.stored = '1') nth
            JOIN (SELECT *, row_number() OVER (ORDER BY message_no) AS nth
                  FROM messages WHERE message_no BETWEEN batch.first_no AND batch.last_no) m USING (nth)
        )
        SELECT json_agg(s.place ORDER BY s.place)::text, json_agg(s.message_no ORDER BY s.place)::text, json_agg(s.seq ORDER BY s.place)::text,
          json_agg(s.deliveries_queued ORDER BY s.place)::text, json_agg(s.accepted_at ORDER BY s.place)::text,
          (SELECT json_agg(d.instance_id ORDER BY d.delivery_no)::text FROM deliveries d WHERE d.delivery_no BETWEEN batch.first_no AND batch.last_no),
          (SELECT json_agg(d.target_agents ORDER BY d.delivery_no)::text FROM deliveries d WHERE d.delivery_no BETWEEN batch.first_no AND batch.last_no),
          NULL::text${origin.replayed}
        FROM stored s HAVING count(*) > 0;
      RETURN QUERY ${repeatedKeys(of, origin, `unnest(of_meetings, keys${of.lists}, string_to_array(batch.stored, NULL)) WITH ORDINALITY AS i(of_meeting, key${of.names}, stored, place)`, "i.stored = '0'")};
      RETURN;
    END IF;

    PERFORM pg_advisory_xact_lock_shared(${REMOVAL});

    -- A meeting with a hint already has a row, unless the database has lost it.
    IF array_position(hints, NULL) IS NOT NULL THEN
      ${makeMeetings('w.hint IS NULL')}
    END IF;
    ${LOCK_MEETINGS}
    IF cardinality(last_seqs) IS DISTINCT FROM cardinality(meeting_ids) THEN
      ${makeMeetings('true')}
      ${LOCK_MEETINGS}
    END IF;

    IF has_keys THEN
      SELECT array_agg(k.key IS NULL ORDER BY i.place) INTO is_new
        FROM unnest(of_meetings, wall_ats, keys${of.lists}) WITH ORDINALITY AS i(of_meeting, wall_at, key${of.names}, place)
          LEFT JOIN LATERAL (SELECT k.key FROM idempotency_keys k
            WHERE ${of.same_key} AND k.created_at > i.wall_at - ${IDEMPOTENCY_MS} ${of.any}) k ON true;${of.choose}
      RETURN QUERY ${repeatedKeys(of, origin, `unnest(of_meetings, keys${of.lists}, is_new) WITH ORDINALITY AS i(of_meeting, key${of.names}, is_new, place)`, 'NOT i.is_new')};
      SELECT array_agg(coalesce(counted.n, 0) ORDER BY w.place) INTO new_counts
        FROM unnest(meeting_ids) WITH ORDINALITY AS w(meeting_id, place)
          LEFT JOIN (SELECT i.of_meeting, count(*) AS n FROM unnest(of_meetings, is_new) AS i(of_meeting, is_new) WHERE i.is_new GROUP BY i.of_meeting) counted
            ON counted.of_meeting = w.place;
      IF NOT (true = ANY (is_new)) THEN
        RETURN;
      END IF;
    END IF;
${origin.judge}
    -- With a lower bound the search looks at few entries of the index, and not at all entries of its last page.
    SELECT array_agg(greatest(w.last_seq, coalesce(
        (SELECT m.seq FROM messages m WHERE m.meeting_id = w.meeting_id AND m.seq >= w.hint ORDER BY m.seq DESC LIMIT 1),
        (SELECT m.seq FROM messages m WHERE m.meeting_id = w.meeting_id ORDER BY m.seq DESC LIMIT 1))) ORDER BY w.place) INTO former_seqs
      FROM unnest(meeting_ids, hints, last_seqs) WITH ORDINALITY AS w(meeting_id, hint, last_seq, place);
${origin.count}
    -- Old batches slow down nothing until they are removed here. The look-up of the last batch begins at the end of the
    -- index, so it finds that batch first, however many dead rows of others cannot be removed yet.
    IF my_batch_no % ${BATCHES_KEPT} = 0 THEN
      DELETE FROM batches WHERE run_no = my_run_no AND batch_no < my_batch_no;
    END IF;

    RETURN QUERY
      WITH meeting AS MATERIALIZED (
        SELECT w.* FROM unnest(meeting_ids, new_counts, former_seqs) WITH ORDINALITY AS w(meeting_id, n, former_seq, of_meeting)
        WHERE w.n > 0
      ), item AS MATERIALIZED (
        -- An item has no texts: the INSERTs take them from their arrays by place, so that no join and no sort carries
        -- them.
        SELECT i.place, i.of_meeting, row_number() OVER (ORDER BY i.place) AS nth, row_number() OVER (PARTITION BY i.of_meeting ORDER BY i.place) AS rank
        FROM unnest(of_meetings) WITH ORDINALITY AS i(of_meeting, place)
        WHERE is_new IS NULL OR is_new[i.place]
      ), membership AS MATERIALIZED (
        SELECT s.meeting_id, s.instance_id, s.agent_ids${wake.column} FROM memberships s WHERE s.meeting_id = ANY (meeting_ids) AND s.left_at IS NULL
      ), member AS MATERIALIZED (
        SELECT w.of_meeting, s.instance_id, r.partition_no, s.agent_ids${wake.column}
        FROM membership s JOIN meeting w ON w.meeting_id = s.meeting_id JOIN recipients r ON r.instance_id = s.instance_id
        WHERE r.instance_id = ANY (ARRAY(SELECT DISTINCT s.instance_id FROM membership s))
      ), recipient AS MATERIALIZED (
        SELECT i.nth, r.instance_id, r.partition_no, notified.agents, row_number() OVER (ORDER BY i.nth, r.instance_id) AS number
        FROM item i JOIN member r ON r.of_meeting = i.of_meeting
          -- OFFSET 0 keeps the list of agents from being computed twice: for its value, and for the condition below.
          CROSS JOIN LATERAL (SELECT CASE ${wake.asleep}WHEN targets[i.place] IS NULL OR targets[i.place] = '[]' THEN ${origin.everybody} ELSE (${AGENTS_TO_NOTIFY}) END AS agents OFFSET 0) notified
        WHERE notified.agents <> '[]'
      ), sent AS MATERIALIZED (
        SELECT r.nth, count(*) AS n FROM recipient r GROUP BY r.nth
      ), taken AS MATERIALIZED (
        SELECT wanted, take_numbers(wanted) AS first_no FROM (SELECT (SELECT count(*) FROM item) + (SELECT count(*) FROM recipient) AS wanted) counted
      ), numbered AS MATERIALIZED (
        SELECT i.place, i.nth, w.meeting_id, w.former_seq + i.rank AS seq, coalesce(sent.n, 0) AS deliveries_queued,
          taken.first_no + i.nth - 1
            + coalesce(sum(sent.n) OVER (ORDER BY i.nth ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)::bigint AS message_no
        FROM taken CROSS JOIN item i JOIN meeting w ON w.of_meeting = i.of_meeting LEFT JOIN sent ON sent.nth = i.nth
      ), stored_messages AS (
        INSERT INTO messages (message_no, meeting_id, seq, accepted_at, deliveries_queued, target_agents, timestamp, message${origin.columns}${trace.columns})
        SELECT n.message_no, n.meeting_id, n.seq, wall_ats[n.place], n.deliveries_queued, targets[n.place], timestamps[n.place], texts[n.place]${origin.values}${trace.values} FROM numbered n
      ), stored_deliveries AS (
        INSERT INTO deliveries (delivery_no, message_no, meeting_id, seq, instance_id, partition_no, target_agents, expires_at, created_at)
        SELECT taken.first_no + r.nth - 1 + r.number, n.message_no, n.meeting_id, n.seq, r.instance_id, r.partition_no, r.agents, expire_ats[n.place], wall_ats[n.place]
        FROM taken CROSS JOIN recipient r JOIN numbered n ON n.nth = r.nth ORDER BY r.number
      ), stored_keys AS (
        INSERT INTO idempotency_keys (meeting_id, key, fingerprint, message_no, seq, accepted_at, deliveries_queued, created_at${of.columns})
        SELECT n.meeting_id, ${of.stored}[n.place], fingerprints[n.place], n.message_no, n.seq, wall_ats[n.place], n.deliveries_queued, wall_ats[n.place]${of.values}
        FROM numbered n WHERE has_keys AND keys[n.place] IS NOT NULL
        ON CONFLICT (meeting_id, key) DO UPDATE SET fingerprint = excluded.fingerprint, message_no = excluded.message_no, seq = excluded.seq,
          accepted_at = excluded.accepted_at, deliveries_queued = excluded.deliveries_queued, created_at = excluded.created_at${of.updates}
      ), noted AS (
        INSERT INTO batches (run_no, batch_no, first_no, last_no, stored)
        SELECT my_run_no, my_batch_no, taken.first_no, taken.first_no + taken.wanted - 1,
          CASE WHEN is_new IS NULL THEN repeat('1', cardinality(of_meetings))
            ELSE (SELECT string_agg(CASE WHEN f.is_new THEN '1' ELSE '0' END, '' ORDER BY f.place) FROM unnest(is_new) WITH ORDINALITY AS f(is_new, place)) END
        FROM taken
      )
      SELECT json_agg(n.place ORDER BY n.nth)::text, json_agg(n.message_no ORDER BY n.nth)::text, json_agg(n.seq ORDER BY n.nth)::text,
        json_agg(n.deliveries_queued ORDER BY n.nth)::text, json_agg(wall_ats[n.place] ORDER BY n.nth)::text,
        (SELECT json_agg(r.instance_id ORDER BY r.number)::text FROM recipient r), (SELECT json_agg(r.agents ORDER BY r.number)::text FROM recipient r),
        NULL::text${origin.stored}
      FROM numbered n;

    IF EXISTS (SELECT 1 FROM nodes n WHERE n.node_id IS DISTINCT FROM my_node_id) THEN
      SELECT * INTO batch FROM batches WHERE run_no = my_run_no AND batch_no = my_batch_no;
      PERFORM pg_notify('${CHANNEL}', json_build_object('from', teller, 'kind', 'stored', 'first_no', batch.first_no, 'last_no', batch.last_no)::text);
    END IF;
  END $$;
`;
}

export const ACCEPT_MESSAGES = acceptMessages('accept_messages', OF_MEETING, NO_ORIGINS);

/**
 * `ACCEPT_MESSAGES`, but idempotency keys belong to their senders. Nodes of the previous version call
 * `ACCEPT_MESSAGES`.
 */
export const ACCEPT_MESSAGES_2 = acceptMessages('accept_messages_2', OF_SENDER, NO_ORIGINS);

/** `ACCEPT_MESSAGES_2`, with the agent that sends a message, and the message that it answers. */
export const ACCEPT_MESSAGES_3 = acceptMessages('accept_messages_3', OF_SENDER, ORIGINS);

/** `ACCEPT_MESSAGES_3`, with memberships that have `wake`. */
export const ACCEPT_MESSAGES_4 = acceptMessages('accept_messages_4', OF_SENDER, ORIGINS, WAKES_SOME);

/** `ACCEPT_MESSAGES_4`, with the trace that a message belongs to. */
export const ACCEPT_MESSAGES_5 = acceptMessages('accept_messages_5', OF_SENDER, ORIGINS, WAKES_SOME, TRACES);
