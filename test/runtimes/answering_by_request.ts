/** A scripted model for runtimes that return no answer: a tool makes the request that Convoke's prompt shows. */
import type { ModelServer, Step, Turn } from './model_server.ts';

const COMMAND = /^curl .*convoke-reply-token.*YOUR ANSWER.*$/m;

/**
 * Lets the model call a tool with a command that answers, and then end its run.
 * @param tool the tool of the runtime that runs commands
 */
export function answerWith(model: ModelServer, tool: string): void {
  model.stepFor = (turn, number): Step => {
    const [command] = turn.is_first ? (COMMAND.exec(turn.last) ?? []) : [];
    if (command === undefined) return { text: 'I have answered.' };
    return { tool, arguments: { command: command.replace('YOUR ANSWER', `Answer ${number}`) } };
  };
}

/** How often an agent has run for a message with this text. */
export function runsIn({ turns }: ModelServer): (content: string) => number {
  const isRun = ({ is_first }: Turn): boolean => is_first;
  return (content) => turns.filter((turn) => isRun(turn) && turn.last.includes(content)).length;
}
