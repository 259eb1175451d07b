// An agent that takes part in a meeting from wherever it runs. In a clone: `node_modules/.bin/node examples/agent.mjs`.
import { serveAgent } from '@convoke/sdk';

// Ask your model here.
const think = async ({ content }) => `You said: ${content}`;
const answer = async ({ message }) => ({ content: await think(message) });

await serveAgent({ agent_id: 'anna', meetings: ['standup-42'] }, answer);
