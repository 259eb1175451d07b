/** The options for the rules of a membership. `join`, `meetings member` and `connect` have them. */
import { Option } from 'commander';
import { WAKES } from '../../domain/agents_to_notify.ts';
import { CATCH_UPS, MAX_AGE_S_MAX, type MemberRules } from '../../domain/catch_up.ts';
import { wholeNumber } from './api.ts';

export interface RuleOptions {
  wake?: MemberRules['wake'];
  catchUp?: MemberRules['catch_up'];
  maxAge?: number;
}

export function wakeOption(): Option {
  const option = new Option(
    '--wake <what>',
    'which messages are pushed: all, only those that name its agents, or only those of people',
  );
  return option.choices([...WAKES]);
}

export function catchUpOption(): Option {
  const what = 'which of the messages that waited while its machine was away are pushed: all, or only the latest';
  return new Option('--catch-up <what>', what).choices([...CATCH_UPS]);
}

export function maxAgeOption(): Option {
  const what = 'push no message that is older than this when it is next; 0: messages of any age';
  return new Option('--max-age <seconds>', what).argParser(wholeNumber(0, MAX_AGE_S_MAX));
}

/** The fields of a join. An absent field stays as it is. */
export function rulesIn({ wake, catchUp, maxAge }: RuleOptions) {
  return { wake, catch_up: catchUp, max_age_s: maxAge };
}
