import type { Asked } from '../../src/domain/runtimes/runtime.ts';

/** A push as a runtime is asked about it. */
export const askedOf = (more: Partial<Asked> = {}): Asked => ({
  delivery_id: 'dlv_00000001',
  message_id: 'msg_00000001',
  seq: 7,
  meeting_id: 'standup-42',
  message: { content: 'Who is there?' },
  agents: ['lena'],
  timestamp: '',
  from_agent: null,
  in_reply_to: null,
  reply_url: null,
  reply_token: null,
  missed: 0,
  body: '{}',
  history: [],
  ...more,
});
