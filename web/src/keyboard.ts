/** The state that the keyboard shortcuts share. */

const PREFIX_MS = 1500;
let prefixed_until = 0;

/** `g` was pressed: the next key chooses a view. */
export function beginPrefix(): void {
  prefixed_until = performance.now() + PREFIX_MS;
}

export function isPrefixed(): boolean {
  return performance.now() < prefixed_until;
}

export function endPrefix(): void {
  prefixed_until = 0;
}

/** Whether the last link was followed with the keyboard: the focus then goes into the opened view. */
export const followed = { by_keyboard: false };

/**
 * Whether a key was pressed for an input method, such as the Enter that confirms a Japanese word. Safari says so only
 * with the key code 229, because its composition has ended by then.
 */
export function isForInputMethod({ isComposing, keyCode }: KeyboardEvent): boolean {
  return isComposing || keyCode === 229;
}

/** Keys are shortcuts only while nobody writes in a field. */
export function isWriting(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    target.closest('input:not([type=radio], [type=checkbox]), textarea, select') !== null
  );
}
