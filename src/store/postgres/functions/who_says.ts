/**
 * The parts of accept_messages for two facts about a message: the agent that sends it, and the message that it answers.
 */
import { FOLLOWS_MS } from '../../../domain/message_origin.ts';

/** The SQLSTATE of a batch with messages that are refused. Its detail is the JSON text of a list of [place, field]. */
export const REFUSED = 'CV003';

/** Each field is a part of the text of a function accept_messages. */
export interface OriginParts {
  /** Parameters after the texts of the messages. */
  parameters: string;
  /** The columns of the result, and their values in a row of each kind. */
  result: string;
  replayed: string;
  of_repeated: string;
  stored: string;
  declared: string;
  /** Refuses the batch when one of its new messages is refused. */
  judge: string;
  /** Computes the hops, by the place of the message. */
  count: string;
  /** The agents of `r` that get the message without targets at `i.place`. */
  everybody: string;
  columns: string;
  values: string;
}

/** Earlier versions store neither the sender of a message nor the message that it answers. */
export const NO_ORIGINS: OriginParts = {
  parameters: '',
  result: '',
  replayed: '',
  of_repeated: '',
  stored: '',
  declared: '',
  judge: '',
  count: '',
  everybody: 'r.agent_ids',
  columns: '',
  values: '',
};

/**
 * When no message of a batch has a sender or answers another, has_said is false and the lists are empty. Then every
 * element of a list reads as null, and the function works like the previous version of accept_messages.
 *
 * A refused message raises an error, so that nothing of the batch is stored, not even its meeting. The caller then
 * sends the other messages again.
 *
 * In `judge`, OFFSET 0 keeps each look-up from becoming a join. In `count`, two kinds of messages begin a chain:
 * messages that no agent says, and messages that name the message they answer. The messages after such a message
 * continue its count of hops. The messages before the first chain of the batch continue the count of the last message
 * that was stored earlier. See hopsOf in src/domain/message_origin.ts.
 */
export const ORIGINS: OriginParts = {
  parameters: `
    has_said boolean, from_agents text[], answered_nos bigint[], speakers text[], speaker_limits text[],`,
  result: ', hop_counts text',
  replayed: ', json_agg(s.hops ORDER BY s.place)::text',
  of_repeated: ', NULL::text',
  stored: ', CASE WHEN has_said THEN json_agg(hops[n.place] ORDER BY n.nth)::text END',
  declared: `
    refused text;
    hops bigint[];`,
  judge: `
    IF has_said THEN
      SELECT json_agg(json_build_array(j.place, j.field))::text INTO refused FROM (
        SELECT u.place, CASE
          WHEN (u.speaker IS NOT NULL OR u.speaker_limit IS NOT NULL) AND NOT EXISTS (SELECT 1 FROM memberships s JOIN instances o ON o.instance_id = s.instance_id
              WHERE s.meeting_id = meeting_ids[u.of_meeting] AND s.left_at IS NULL
                AND (u.speaker IS NULL OR o.owner_key_id = u.speaker) AND o.instance_id = coalesce(u.speaker_limit, o.instance_id)
                AND u.from_agent IN (SELECT json_array_elements_text(s.agent_ids::json)) OFFSET 0) THEN 'from_agent'
          WHEN u.answered_no IS NOT NULL AND NOT EXISTS (SELECT 1 FROM messages m
              WHERE m.message_no = u.answered_no AND m.meeting_id = meeting_ids[u.of_meeting] OFFSET 0) THEN 'in_reply_to' END AS field
        FROM unnest(of_meetings, from_agents, answered_nos, speakers, speaker_limits)
          WITH ORDINALITY AS u(of_meeting, from_agent, answered_no, speaker, speaker_limit, place)
        WHERE is_new IS NULL OR is_new[u.place]) j WHERE j.field IS NOT NULL;
      IF refused IS NOT NULL THEN
        RAISE EXCEPTION 'messages are refused' USING ERRCODE = '${REFUSED}', DETAIL = refused;
      END IF;
    END IF;
`,
  count: `
    IF has_said THEN
      SELECT array_agg(CASE WHEN c.from_agent IS NULL THEN 0 ELSE c.before + c.nth END ORDER BY c.place) INTO hops FROM (
        SELECT k.place, k.from_agent,
          coalesce(max(k.own) OVER (PARTITION BY k.of_meeting, k.chain) - 1, k.newest, 0) AS before,
          count(*) FILTER (WHERE k.counts) OVER (PARTITION BY k.of_meeting, k.chain ORDER BY k.place) AS nth
        FROM (
          SELECT w.*, count(w.own) OVER (PARTITION BY w.of_meeting ORDER BY w.place) AS chain FROM (
            SELECT u.place, u.of_meeting, u.from_agent, u.counts,
              CASE WHEN NOT u.counts THEN NULL WHEN u.from_agent IS NULL THEN 0
                ELSE (SELECT m.hops + 1 FROM messages m WHERE m.message_no = u.answered_no) END AS own,
              (SELECT m.hops FROM messages m WHERE m.meeting_id = meeting_ids[u.of_meeting] AND m.seq = former_seqs[u.of_meeting]
                AND wall_ats[u.place] - m.accepted_at < ${FOLLOWS_MS}) AS newest
            FROM (SELECT i.*, is_new IS NULL OR is_new[i.place] AS counts
              FROM unnest(of_meetings, from_agents, answered_nos) WITH ORDINALITY AS i(of_meeting, from_agent, answered_no, place)) u) w) k) c;
    END IF;
`,
  everybody: `CASE WHEN from_agents[i.place] IS NULL THEN r.agent_ids ELSE (
            SELECT coalesce('[' || string_agg(agent.value::text, ',' ORDER BY agent.place) || ']', '[]')
            FROM json_array_elements(r.agent_ids::json) WITH ORDINALITY AS agent(value, place)
            WHERE agent.value #>> '{}' <> from_agents[i.place]) END`,
  columns: ', from_agent, in_reply_to, hops',
  values: ', from_agents[n.place], answered_nos[n.place], coalesce(hops[n.place], 0)',
};
