/** The unsent messages of people, for each meeting. */
import { session } from './service.ts';

export interface Draft {
  text: string;
  form: 'text' | 'json';
  /** The agents that the message is for; none: everybody. */
  targets: readonly string[];
}

const NO_DRAFT: Draft = { text: '', form: 'text', targets: [] };

/** The number of latest drafts that are kept. */
const KEPT_MAX = 20;
/** The browser keeps the drafts until the tab is closed, so they are there after a reload. */
const DRAFTS = 'convoke.drafts';

const drafts = new Map<string, Draft>(stored());

function stored(): [string, Draft][] {
  try {
    return JSON.parse(sessionStorage.getItem(DRAFTS) ?? '[]') as [string, Draft][];
  } catch {
    return [];
  }
}

/** A draft outlives its session. Only the same key sees it again. */
function keyOf(meeting_id: string): string {
  return JSON.stringify([session.value?.key_id ?? null, meeting_id]);
}

export function draftOf(meeting_id: string): Draft {
  return drafts.get(keyOf(meeting_id)) ?? NO_DRAFT;
}

export function keepDraft(meeting_id: string, draft: Draft): void {
  const key = keyOf(meeting_id);
  drafts.delete(key);
  if (draft.text !== '') drafts.set(key, draft);
  if (drafts.size > KEPT_MAX) drafts.delete(drafts.keys().next().value as string);
  try {
    sessionStorage.setItem(DRAFTS, JSON.stringify([...drafts]));
  } catch {
    // The draft stays in this page until the page is closed.
  }
}
