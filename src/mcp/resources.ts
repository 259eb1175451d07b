/** Meetings and their histories, for clients that show resources to people. */
import { type ReadResourceResult, ResourceNotFoundError } from '@modelcontextprotocol/server';
import { ConvokeError } from '@convoke/sdk';
import { isAddressableId } from '../domain/id.ts';
import type { Caller } from './caller.ts';
import { exactly } from './exact_messages.ts';
import { fitting, NOTICE, quoted } from './quoted_messages.ts';

const BASE = 'convoke://meetings/';
const MIME_TYPE = 'application/json';
const LISTED_MAX = 50;
const MESSAGES_MAX = 50;
const INSTANCES_MAX = 50;

export const RESOURCE_TEMPLATES = [
  {
    name: 'meeting',
    title: 'A meeting',
    uriTemplate: `${BASE}{meeting_id}`,
    description: 'How many take part, who they are, and what was last said when. The id is percent-encoded.',
    mimeType: MIME_TYPE,
  },
  {
    name: 'history',
    title: 'The history of a meeting',
    uriTemplate: `${BASE}{meeting_id}/messages{?after_seq,before_seq}`,
    description: `The latest ${MESSAGES_MAX} messages of a meeting, or those after or before a seq; fewer when they are long.`,
    mimeType: MIME_TYPE,
  },
];

/** A page of the meetings that the caller may read; empty for a key that may read none. */
export async function listResources(caller: Caller, cursor: string | undefined) {
  const { client, signal } = caller;
  const { scopes } = await caller.session();
  if (!scopes.includes('read') && !scopes.includes('admin')) return { resources: [] };
  const { data, next_cursor } = await client.listMeetings({ cursor, limit: LISTED_MAX }, { signal });
  return {
    resources: data.map(({ meeting_id, last_seq }) => ({
      uri: `${BASE}${encodeURIComponent(meeting_id)}/messages`,
      name: meeting_id,
      description: `What was said in it: ${last_seq} messages.`,
      mimeType: MIME_TYPE,
    })),
    ...(next_cursor !== null && { nextCursor: next_cursor }),
  };
}

/** @throws ResourceNotFoundError; ConvokeError when the service refuses the call */
export async function readResource(caller: Caller, uri: string): Promise<ReadResourceResult> {
  const place = placeOf(uri);
  if (place === null) throw new ResourceNotFoundError(uri);
  try {
    const { meeting_id, history } = place;
    const value = history === null ? await meetingOf(caller, meeting_id) : await historyOf(caller, meeting_id, history);
    return { contents: [{ uri, mimeType: MIME_TYPE, text: JSON.stringify(value) }] };
  } catch (error) {
    if (error instanceof ConvokeError && error.code === 'meeting_does_not_exist') throw new ResourceNotFoundError(uri);
    throw error;
  }
}

interface Place {
  meeting_id: string;
  /** The requested messages; null for the meeting itself. */
  history: { after_seq?: number; before_seq?: number } | null;
}

const PLACE = /^convoke:\/\/meetings\/([^/?#]+)(\/messages)?(?:\?([^#]*))?$/;

function placeOf(uri: string): Place | null {
  const [, id = '', history, query] = PLACE.exec(uri) ?? [];
  if (id === '') return null;
  try {
    const given = new URLSearchParams(query);
    const seqs = ['after_seq', 'before_seq'].flatMap((name) => {
      const text = given.get(name);
      return text === null ? [] : [[name, Number(text)]];
    });
    const meeting_id = decodeURIComponent(id);
    if (!isAddressableId(meeting_id)) return null;
    return { meeting_id, history: history === undefined ? null : Object.fromEntries(seqs) };
  } catch {
    return null;
  }
}

async function meetingOf({ client, signal }: Caller, meeting_id: string) {
  const meeting = await client.getMeeting(meeting_id, { signal });
  const { data, next_cursor } = await client.listMeetingInstances(meeting_id, { limit: INSTANCES_MAX }, { signal });
  const takes_part = data.map(({ instance_id, instance_name, agent_ids, health }) => ({
    instance_id,
    instance_name,
    agent_ids,
    health,
  }));
  return { meeting, takes_part, has_more: next_cursor !== null };
}

async function historyOf({ client, signal }: Caller, meeting_id: string, query: NonNullable<Place['history']>) {
  const page = await client.listRawMessages(meeting_id, { ...query, limit: MESSAGES_MAX }, { signal });
  const messages = fitting(page.data, query.after_seq === undefined ? 'last' : 'first', (each) =>
    quoted(exactly(each)),
  );
  return { notice: NOTICE, messages, has_more: page.has_more || messages.length < page.data.length };
}
