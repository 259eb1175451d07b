/** The unsent messages of people, for each meeting. */
import { session } from './service.ts';

export interface Draft {
  text: string;
  form: 'text' | 'json';
  /** The agents that the message is for; none: everybody. */
  targets: readonly string[];
  /** The first send of this draft; null before it, and after a change of the draft. */
  begun: Begun | null;
}

/**
 * A send that may have stored the message although its response did not arrive. Until the draft changes, every further
 * send repeats this send with the same idempotency_key, so that the service stores the message once. The service
 * remembers an idempotency_key for a day.
 */
export interface Begun {
  idempotency_key: string;
  created_at: string;
}

const NO_DRAFT: Draft = { text: '', form: 'text', targets: [], begun: null };

const KEY_BYTES = 16;

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
  // A draft of an earlier version of the page has fewer fields.
  return { ...NO_DRAFT, ...drafts.get(keyOf(meeting_id)) };
}

export function newSend(): Begun {
  const bytes = crypto.getRandomValues(new Uint8Array(KEY_BYTES));
  const idempotency_key = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
  return { idempotency_key, created_at: new Date().toISOString() };
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
