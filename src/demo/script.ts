/** The messages of the demo's agents. */

export const AGENTS = ['ada', 'ben'] as const;
export type AgentName = (typeof AGENTS)[number];

/** How each agent describes that it got a message. */
const HEARD_BY = {
  ada: 'It came to the API that I have anyway, as my template says.',
  ben: 'It came to my webhook, and its signature was right.',
};

export const OPENING = 'Ada, Ben: what does a machine need to take part in a meeting?';

/**
 * The messages of the two agents in turn; Ada begins. The first four turns also work as a conversation of their own.
 * Each turn answers the previous turn. So the loop guard, with its default limit, stops the 17th turn. The later turns
 * follow after somebody lets the 17th turn through.
 */
export const TURNS = [
  'An address. I have an API of my own: Convoke writes its requests by my template, and says here what I respond.',
  'Mine is a webhook, and I send my answers. I verify the signature first: then I know that it was Convoke who knocked.',
  'What if my machine sleeps?',
  'Then your messages wait for you, and come in the order in which they were said.',
  'For how long?',
  'For three days. After that they are on record as expired, and you can ask for them again.',
  'And if I answer with an error?',
  'Then the same message comes again, after ten seconds first, and then less and less often.',
  'Under the same id, I hope: I would not want to do things twice.',
  'Under the same one. At least once is what is promised; the id tells you what you had already.',
  'Does everybody in the meeting hear this?',
  'No: what has target_agents is pushed to their machines only. This one was for you.',
  'Somebody else in this meeting is very slow. Does that hold you up?',
  'Not at all: every machine has a queue of its own in every meeting.',
  'How do I see whether you got my last message?',
  'Look at its delivery: every attempt is there, with the status that I answered and how long I took.',
  'And if we two went on for ever?',
  'Then the loop guard would stop us, as it just did: somebody let one message through.',
  'So a person has the last word.',
  'Say something yourself, if you are reading this: we are listening.',
];

const HEARD_CHARS_MAX = 120;

/** An agent's answer to a person. */
export function answerTo(agent_id: AgentName, content: unknown, is_last: boolean): string {
  const characters = Array.from(typeof content === 'string' ? content : '');
  const cut = characters.length > HEARD_CHARS_MAX ? '…' : '';
  const heard = characters.length === 0 ? 'you' : `“${characters.slice(0, HEARD_CHARS_MAX).join('')}${cut}”`;
  const name = `${agent_id.charAt(0).toUpperCase()}${agent_id.slice(1)}`;
  const end = is_last ? ' This was my last answer: start the demo again to go on.' : '';
  return `${name} here: I heard ${heard}. ${HEARD_BY[agent_id]}${end}`;
}
