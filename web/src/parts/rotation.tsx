/** What the dialogs that rotate a token or a secret share. */
import type { JSX } from 'preact';
import { ConvokeError } from '@convoke/sdk';
import { SelectField } from './dialog.tsx';

export type Rotated = 'token' | 'secret';

/** The overlap of a rotation that says nothing else, in seconds, as a value of the field. */
export const OVERLAP_DEFAULT = '86400';
const AT_ONCE = '0';

interface OverlapFieldProps {
  what: Rotated;
  hint: string;
  value: string;
  onChange: (value: string) => void;
}

/** Asks when the old token or secret ends. */
export function OverlapField({ what, hint, value, onChange }: OverlapFieldProps): JSX.Element {
  return (
    <SelectField
      label={`The old ${what} ends`}
      hint={value === AT_ONCE ? `Every earlier ${what} ends at once, too.` : hint}
      options={[
        [AT_ONCE, `at once: the old ${what} is compromised`],
        ['3600', 'in an hour'],
        [OVERLAP_DEFAULT, 'in a day'],
        ['604800', 'in a week'],
      ]}
      value={value}
      onChange={onChange}
    />
  );
}

/** Says a refusal of a rotation in the words of the field, and not in those of the API. */
export async function refusedInWords<T>(what: Rotated, rotating: Promise<T>): Promise<T> {
  try {
    return await rotating;
  } catch (error) {
    if (!(error instanceof ConvokeError) || error.code !== 'overlaps_in_progress') throw error;
    throw new ConvokeError(
      error.code,
      `Four earlier ${what}s still work, and more are not possible. Wait until one of them has ended, or let the old ${what} end at once, which ends all of them.`,
    );
  }
}
