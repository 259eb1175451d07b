import type { JSX } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Form, TextField } from '../parts/dialog.tsx';
import { Environment } from '../parts/who.tsx';
import { Brand } from '../parts/icons.tsx';
import { useObservable } from '../observable.ts';
import { signed_out_because } from '../service.ts';
import { signIn } from '../session.ts';

/** Shown instead of every view while the service requires a key. */
export function SignIn(): JSX.Element {
  const [key, setKey] = useState('');
  const why = useObservable(signed_out_because);
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => box.current?.querySelector('input')?.focus(), []);
  return (
    <main class="sign-in">
      <div class="sign-in-box" ref={box}>
        <h1>
          <Brand /> Convoke <Environment />
        </h1>
        {why !== null && (
          <p class="refusal" role="alert">
            {why}
          </p>
        )}
        <p>This service needs a key. The page exchanges it for a session, and does not keep it in this browser.</p>
        <Form action="Sign in" onSubmit={() => signIn(key.trim())}>
          <TextField
            label="Key"
            value={key}
            onChange={setKey}
            type="password"
            is_required
            is_code
            placeholder="cvk_…"
            autocomplete="current-password"
            hint="An admin makes one with: npx convoke keys create --scope read"
          />
        </Form>
      </div>
    </main>
  );
}
