// An agent on the official A2A SDK: it thinks for a while, and answers with the text that it got. Its arguments are the
// directory that holds node_modules, and the duration of a turn in milliseconds. It prints its address, and a line for
// each run.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { setTimeout as pause } from 'node:timers/promises';

const [directory, turn_ms] = process.argv.slice(2);
const require = createRequire(`${directory}/package.json`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { TaskState, Role } = await load('@a2a-js/sdk');
const { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } = await load('@a2a-js/sdk/server');
const { agentCardHandler, jsonRpcHandler, restHandler, UserBuilder } = await load('@a2a-js/sdk/server/express');
const { default: express } = await load('express');

const text = (value) => ({
  content: { $case: 'text', value },
  metadata: undefined,
  filename: '',
  mediaType: 'text/plain',
});

const executor = {
  async execute({ userMessage, taskId, contextId }, bus) {
    const heard = userMessage.parts.map(({ content }) => content?.value ?? '').join('\n');
    console.log(`run ${JSON.stringify({ heard, contextId, messageId: userMessage.messageId })}`);
    const status = (state, message) => ({ state, message, timestamp: new Date().toISOString() });
    if (heard.includes('at once')) {
      const message = {
        messageId: `m-${taskId}`,
        contextId,
        taskId: '',
        role: Role.ROLE_AGENT,
        parts: [text(`I heard: ${heard}`)],
        metadata: undefined,
        extensions: [],
        referenceTaskIds: [],
      };
      bus.publish(AgentEvent.message(message));
      bus.finished();
      return;
    }
    const task = {
      id: taskId,
      contextId,
      status: status(TaskState.TASK_STATE_WORKING),
      artifacts: [],
      history: [userMessage],
      metadata: undefined,
    };
    bus.publish(AgentEvent.task(task));
    await pause(Number(turn_ms));
    const artifact = {
      artifactId: 'answer',
      name: 'answer',
      description: '',
      parts: [text(`I heard: ${heard}`)],
      metadata: undefined,
      extensions: [],
    };
    bus.publish(
      AgentEvent.artifactUpdate({ taskId, contextId, artifact, append: false, lastChunk: true, metadata: undefined }),
    );
    bus.publish(
      AgentEvent.statusUpdate({
        taskId,
        contextId,
        status: status(TaskState.TASK_STATE_COMPLETED),
        metadata: undefined,
      }),
    );
    bus.finished();
  },
  async cancelTask() {},
};

const app = express();
const server = app.listen(0, '127.0.0.1', () => {
  const url = `http://127.0.0.1:${server.address().port}`;
  const card = {
    name: 'The agent of the test',
    description: 'Answers what it heard.',
    version: '1.0.0',
    provider: undefined,
    documentationUrl: '',
    supportedInterfaces: [
      { url: `${url}/rest`, protocolBinding: 'HTTP+JSON', protocolVersion: '1.0', tenant: '' },
      { url: `${url}/rpc`, protocolBinding: 'JSONRPC', protocolVersion: '1.0', tenant: '' },
      { url: `${url}/rpc`, protocolBinding: 'JSONRPC', protocolVersion: '0.3', tenant: '' },
    ],
    capabilities: { streaming: true, pushNotifications: false, extensions: [] },
    securitySchemes: {},
    securityRequirements: [],
    defaultInputModes: ['text/plain'],
    defaultOutputModes: ['text/plain'],
    skills: [],
    signatures: [],
    iconUrl: '',
  };
  const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), executor);
  const userBuilder = UserBuilder.noAuthentication;
  const legacyCompat = { enabled: true };
  app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler, legacyCompat }));
  app.use('/rpc', jsonRpcHandler({ requestHandler, userBuilder, legacyCompat }));
  app.use('/rest', restHandler({ requestHandler, userBuilder }));
  console.log(`listening on ${url}`);
});
