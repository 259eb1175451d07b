import type { ComponentChildren, JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Icon } from './icons.tsx';
import { notify } from './notice.tsx';
import { Foreign } from './foreign.tsx';

const SHOWN_MS = 1500;

/**
 * Copies a text. A page that was loaded over plain HTTP from another machine has no clipboard. A frame in the page of
 * another product may not use the clipboard. Such pages can only copy the selection, so `copy` selects the text first.
 *
 * @param beside the element that was pressed; while it is in a dialog, nothing outside of that dialog can be selected
 */
async function copy(text: string, beside: Element): Promise<void> {
  if (await isWritten(text)) return;
  const had_focus = document.activeElement;
  const field = document.createElement('textarea');
  field.value = text;
  (beside.closest('dialog') ?? document.body).append(field);
  field.select();
  const copied = document.activeElement === field && document.execCommand('copy');
  field.remove();
  if (had_focus instanceof HTMLElement) had_focus.focus();
  if (!copied) throw new Error('this browser does not let pages copy');
}

/** Whether the clipboard of the browser took the text. */
function isWritten(text: string): Promise<boolean> {
  if (navigator.clipboard === undefined) return Promise.resolve(false);
  return navigator.clipboard.writeText(text).then(
    () => true,
    () => false,
  );
}

export function Copy({
  text,
  what,
  children,
}: {
  text: string;
  what: string;
  children?: ComponentChildren;
}): JSX.Element {
  const [is_copied, setCopied] = useState(false);
  const onClick = ({ currentTarget }: MouseEvent): void => {
    copy(text, currentTarget as Element).then(
      () => {
        setCopied(true);
        setTimeout(() => setCopied(false), SHOWN_MS);
        notify(`Copied ${what}.`);
      },
      () => notify(`Could not copy; select the text and copy it yourself.`, { is_bad: true }),
    );
  };
  return (
    <button type="button" class="copy bare" onClick={onClick} title={`Copy ${what}`}>
      {children}
      <Icon name={is_copied ? 'done' : 'copy'} />
      <span class="unseen">Copy {what}</span>
    </button>
  );
}

/** An id, with a button that copies it. `href` leads to the object with this id. */
export function Id({ id, what, href }: { id: string; what: string; href?: string }): JSX.Element {
  const text = <Foreign class="id-text">{id}</Foreign>;
  return (
    <span class="id" title={id}>
      {href === undefined ? text : <a href={href}>{text}</a>}
      <Copy text={id} what={what} />
    </span>
  );
}

/** Text to be copied as a whole, such as a command or a secret. */
export function Snippet({ text, what }: { text: string; what: string }): JSX.Element {
  return (
    <div class="snippet">
      <pre aria-label={what}>{text}</pre>
      <Copy text={text} what={what} />
    </div>
  );
}
