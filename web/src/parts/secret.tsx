/** Secrets that the service shows once. The page keeps each one until somebody has saved it. */
import type { ComponentChildren, JSX } from 'preact';
import type { Session } from '@convoke/sdk';
import { Observable, useObservable } from '../observable.ts';
import { is_portal, portalToken } from '../portal.ts';
import { session } from '../service.ts';
import { Snippet } from './copy.tsx';
import { Dialog } from './dialog.tsx';

interface Unsaved {
  /** Who made it; null: anybody, because no key existed. */
  whose: string | null;
  draw: (onSaved: () => void) => JSX.Element;
}

/** Outside of the views, because they end with the session. */
const unsaved = new Observable<readonly Unsaved[]>([]);

session.subscribe(() => (unsaved.value = unsaved.value.filter(({ whose }) => maySee(whose))));

function personOf(found: Session | null): string | null {
  if (is_portal) return portalToken();
  if (found === null || found.state === 'open') return null;
  return found.key_id ?? found.csrf_token;
}

/** Whether nobody else is signed in now. */
function maySee(whose: string | null): boolean {
  if (is_portal) return whose === portalToken();
  const now = session.value;
  return whose === null || now === null || now.state === 'signed_out' || whose === personOf(now);
}

/**
 * Shows the secret that a request makes. The dialog stays in every state of the session until the user has saved the
 * secret, and is drawn for nobody else.
 *
 * @param drawing draws the dialog; null when there is no secret
 * @param onMade closes the form; called only while the session is the one that sent the request
 */
export async function showOnce<T>(
  work: Promise<T>,
  drawing: (made: T) => Unsaved['draw'] | null,
  onMade: (made: T) => void,
): Promise<T> {
  const before = session.value;
  const whose = personOf(before);
  const made = await work;
  if (session.value === before) onMade(made);
  const draw = drawing(made);
  // The form closes first, because a dialog that closes gives back the focus and lets the user go back again.
  queueMicrotask(() => {
    if (draw !== null && maySee(whose)) unsaved.value = [...unsaved.value, { whose, draw }];
  });
  return made;
}

/** The oldest secret that nobody has saved. */
export function UnsavedSecret(): JSX.Element | null {
  const [first, ...rest] = useObservable(unsaved);
  return first?.draw(() => (unsaved.value = rest)) ?? null;
}

interface SecretDialogProps {
  title: string;
  /** Names the secret for the button that copies it. */
  what?: string;
  secret: string;
  onClose: () => void;
  children: ComponentChildren;
}

/** Shows a secret that is shown only once. */
export function SecretDialog({
  title,
  what = 'the secret',
  secret,
  onClose,
  children,
}: SecretDialogProps): JSX.Element {
  return (
    <Dialog title={title} onClose={onClose} is_kept>
      <p>{children}</p>
      <Snippet text={secret} what={what} />
      <p class="hint">It is not shown again: copy it now.</p>
      <div class="form-end">
        <button type="button" class="button primary" onClick={onClose}>
          I’ve saved it
        </button>
      </div>
    </Dialog>
  );
}
