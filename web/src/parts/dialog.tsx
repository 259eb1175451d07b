import { type ComponentChildren, createContext, type JSX } from 'preact';
import { useContext, useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { shown } from '../format.ts';
import { errorOf, isAway } from '../queries.ts';
import { Icon } from './icons.tsx';
import { keepPlace } from '../router.ts';
import { coverPage, Notices } from './notice.tsx';

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  /** The dialog shows a secret that is shown only once, so only a button in the dialog closes it. */
  is_kept?: boolean;
}

/** A form in a dialog says with this whether its request is running. */
const FormState = createContext<(is_busy: boolean) => void>(() => {});

/**
 * A dialog over the page: the browser keeps the focus in the dialog, and gives the focus back at the end. Escape and a
 * click beside the dialog close it, unless a secret that is shown once, or a written text, would be lost. While the
 * request of its form is running, nothing closes the dialog, because the response may have such a secret.
 */
export function Dialog({ title, onClose, children, is_kept: is_secret = false }: DialogProps): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  const [is_written, setWritten] = useState(false);
  const [is_asking, setAsking] = useState(false);
  const [is_busy, setBusy] = useState(false);
  const is_kept = is_secret || is_busy;
  // Takes the focus before the browser paints, so that keys typed right after the opening key go into the dialog.
  useLayoutEffect(() => {
    const focused_before = document.activeElement;
    const element = dialog.current;
    element?.showModal();
    element?.querySelector<HTMLElement>(`form :is(${WRITTEN}), [role=combobox]`)?.focus();
    const uncover = coverPage(dialog);
    return () => {
      uncover();
      // The browser tells of the end a frame later. By then a key may have moved the focus, which then stays.
      const { activeElement } = document;
      const is_lost = activeElement === null || activeElement === document.body || element?.contains(activeElement);
      if (is_lost && focused_before instanceof HTMLElement && focused_before.isConnected) focused_before.focus();
    };
  }, []);
  // Runs before the browser paints too, because a user may go back as soon as the secret is there.
  useLayoutEffect(() => {
    if (!is_kept) return;
    const onLeave = (event: Event): void => event.preventDefault();
    addEventListener('beforeunload', onLeave);
    const release = keepPlace();
    return () => {
      removeEventListener('beforeunload', onLeave);
      release();
    };
  }, [is_kept]);
  /** Whether the dialog may close now. If somebody has written in the dialog, it asks first. */
  const mayClose = (event: Event): boolean => {
    if (!is_kept && !is_written) return true;
    event.preventDefault();
    setAsking(!is_kept);
    return false;
  };
  return (
    <dialog
      ref={dialog}
      class="dialog"
      aria-labelledby={heading}
      // A browser closes a dialog at the second Escape, even when `onCancel` forbids it. So this handler reopens it.
      onClose={() => (is_kept ? dialog.current?.showModal() : onClose())}
      onCancel={mayClose}
      onKeyDown={(event) => event.key === 'Escape' && mayClose(event)}
      onMouseDown={(event) => event.target === dialog.current && mayClose(event) && dialog.current?.close()}
      onInput={({ target }) => target instanceof Element && target.matches(WRITTEN) && setWritten(true)}
    >
      <div class="dialog-inner">
        <header class="dialog-head">
          <h2 id={heading}>{shown(title)}</h2>
          {!is_secret && (
            <button
              type="button"
              class="bare"
              aria-disabled={is_busy}
              onClick={() => !is_busy && dialog.current?.close()}
            >
              <Icon name="close" />
              <span class="unseen">Close</span>
            </button>
          )}
        </header>
        <FormState.Provider value={setBusy}>{children}</FormState.Provider>
        {is_asking && !is_busy && (
          <div class="dialog-ask" role="alert">
            <span class="grow">Discard what you have entered?</span>
            <button type="button" class="button" onClick={() => setAsking(false)}>
              Keep editing
            </button>
            <button type="button" class="button dangerous" onClick={() => dialog.current?.close()}>
              Discard
            </button>
          </div>
        )}
      </div>
      <Notices dialog={dialog} />
    </dialog>
  );
}

/** Fields whose contents nobody wants to write twice. */
const WRITTEN = 'textarea, input:not([type=radio], [type=checkbox], [type=search])';

interface FormProps {
  /** The text of the button. */
  action: string;
  is_dangerous?: boolean;
  /** False while there is nothing that the button could do. */
  is_ready?: boolean;
  /** If it rejects, the form shows the error. */
  onSubmit: () => Promise<void>;
  /** What the form says when no response comes. The request may have taken effect, and the lost response may have had a secret. */
  when_lost?: string;
  children: ComponentChildren;
  /** Content beside the button. */
  aside?: ComponentChildren;
}

/** A form that shows the reason of a refusal beneath its fields. */
export function Form({
  action,
  is_dangerous = false,
  is_ready = true,
  onSubmit,
  when_lost = 'The service does not respond. Your entries are kept: try again.',
  children,
  aside,
}: FormProps): JSX.Element {
  const [refusal, setRefusal] = useState<string[] | null>(null);
  const [is_busy, setBusy] = useState(false);
  const setFormState = useContext(FormState);
  // Runs before the browser handles the next key.
  useLayoutEffect(() => {
    if (!is_busy) return;
    setFormState(true);
    return () => setFormState(false);
  }, [is_busy]);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (is_busy || !is_ready) return;
    setBusy(true);
    setRefusal(null);
    try {
      await onSubmit();
    } catch (error) {
      const found = errorOf(error);
      const { detail, errors } = found;
      if (isAway(found)) setRefusal([when_lost]);
      else setRefusal(errors.length > 0 ? errors.map(({ path, message }) => `${path} ${message}`) : [detail]);
    } finally {
      setBusy(false);
    }
  };
  return (
    <form class="form" onSubmit={(event) => void submit(event)}>
      {children}
      {refusal !== null && (
        <div class="refusal" role="alert">
          <ul>
            {refusal.map((text) => (
              <li key={text}>{text}</li>
            ))}
          </ul>
        </div>
      )}
      <div class="form-end">
        {aside}
        <button
          type="submit"
          class={is_dangerous ? 'button dangerous' : 'button primary'}
          aria-disabled={is_busy || !is_ready}
        >
          {action}
        </button>
      </div>
    </form>
  );
}

interface FieldProps {
  label: string;
  hint?: ComponentChildren;
  children: (id: string, hint_id: string | undefined) => ComponentChildren;
}

export function Field({ label, hint, children }: FieldProps): JSX.Element {
  const id = useId();
  const hint_id = hint === undefined ? undefined : `${id}-hint`;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children(id, hint_id)}
      {hint !== undefined && (
        <p class="hint" id={hint_id}>
          {hint}
        </p>
      )}
    </div>
  );
}

interface SelectFieldProps {
  label: string;
  hint: string;
  options: readonly (readonly [value: string, text: string])[];
  value: string;
  onChange: (value: string) => void;
}

export function SelectField({ label, hint, options, value, onChange }: SelectFieldProps): JSX.Element {
  return (
    <Field label={label} hint={hint}>
      {(id, hint_id) => (
        <select
          id={id}
          class="input"
          aria-describedby={hint_id}
          value={value}
          onChange={(event) => onChange(event.currentTarget.value)}
        >
          {options.map(([option, text]) => (
            <option key={option} value={option}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

interface TextFieldProps {
  label: string;
  value: string;
  onChange: (value: string) => void;
  hint?: ComponentChildren;
  type?: 'text' | 'url' | 'password' | 'datetime-local';
  placeholder?: string;
  is_required?: boolean;
  is_code?: boolean;
  is_fixed?: boolean;
  autocomplete?: string;
}

export function TextField(props: TextFieldProps): JSX.Element {
  const {
    label,
    value,
    onChange,
    hint,
    type = 'text',
    placeholder,
    is_required,
    is_code,
    is_fixed,
    autocomplete,
  } = props;
  return (
    <Field label={label} hint={hint}>
      {(id, hint_id) => (
        <input
          id={id}
          // The types of Preact know one kind of input at a time.
          // oxlint-disable-next-line typescript/no-unnecessary-type-assertion
          type={type as 'text'}
          class={is_code ? 'input code' : 'input'}
          value={value}
          placeholder={placeholder}
          required={is_required}
          readOnly={is_fixed}
          aria-describedby={hint_id}
          autocomplete={autocomplete ?? 'off'}
          autocapitalize="off"
          spellcheck={false}
          onInput={(event) => onChange(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}
