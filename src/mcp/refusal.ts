import { ConvokeError } from '@convoke/sdk';
import { NO_SPEAKER } from '../domain/access.ts';
import { type Problem, type ProblemCode, PROBLEMS } from '../domain/problem.ts';

/** Advice for a model, for the problems whose usual advice is for a program. */
const ADVICE: Partial<Record<ProblemCode, string>> = {
  instance_does_not_exist: 'Call join_meeting first: it registers you.',
  instance_id_taken:
    'Somebody else uses this name: call join_meeting with another agent_id, or with an instance_id of your own.',
  meeting_does_not_exist: 'Check the meeting_id with list_meetings; ids are compared exactly.',
  not_permitted: 'Do not try it again in another way: say to the person you work for what the key does not permit.',
  invalid_fields: 'Correct the fields that are named, and call the tool again.',
  message_does_not_exist: 'Read the meeting with read_messages to find the message_id.',
};

/** The words of one tool or event, where they differ from those of the API. */
export interface OwnWords {
  /** What the caller calls a field, by the name of the field in the API. */
  names?: Readonly<Record<string, string>>;
  /** Advice in place of that for the tools. */
  advice?: Partial<Record<ProblemCode, string>>;
}

/** Describes a failed call in words that say what to do. */
export function refusalInWords(error: ConvokeError | Problem, { names = {}, advice: own = {} }: OwnWords = {}): string {
  const { code } = error;
  const given = renamed(error, names);
  // The detail about a field has no full stop, and the advice follows it.
  const detail = /[.?!]$/.test(given) ? given : `${given}.`;
  const wait_s = error.retry_after_s ?? null;
  if (given === NO_SPEAKER) return `${code}: ${given}`;
  const advice =
    own[code as ProblemCode] ??
    ADVICE[code as ProblemCode] ??
    (code in PROBLEMS ? PROBLEMS[code as ProblemCode].advice : '');
  const wait = wait_s === null ? '' : ` Wait ${wait_s} s before you call it again.`;
  return `${code}: ${detail}${advice === '' || detail === advice ? '' : ` ${advice}`}${wait}`;
}

/** The detail of an error, with the names that the caller gave the fields. */
function renamed(error: ConvokeError | Problem, names: NonNullable<OwnWords['names']>): string {
  const detail = error instanceof ConvokeError ? error.detail : error.message;
  return (error.errors ?? []).reduce((text, { path, message }) => {
    // An item of a list has the name of the list.
    const [field = ''] = path.split('.');
    const name = Object.hasOwn(names, field) ? names[field] : path;
    return text.replace(`${path} ${message}`, () => `${name} ${message}`);
  }, detail);
}
