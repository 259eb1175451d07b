/** A press on a button or a link counts although what arrives meanwhile moves it. */

/** After a longer move the element is released, and the browser decides as always: a press can still be taken back. */
const MOVED_PX_MAX = 8;

/**
 * A browser clicks what is under the pointer both when its button goes down and when it comes up. When a list arrives
 * between the two and moves the pressed element, nothing is clicked. An element that captures the pointer is.
 */
export function keepPresses(): void {
  addEventListener('pointerdown', ({ target, pointerId, pointerType, clientX, clientY }) => {
    const pressed = target instanceof Element ? target.closest<HTMLElement>('button, a, summary') : null;
    if (pressed === null || pointerType !== 'mouse') return;
    pressed.setPointerCapture(pointerId);
    const onMove = (at: PointerEvent): void => {
      if (Math.hypot(at.clientX - clientX, at.clientY - clientY) > MOVED_PX_MAX)
        pressed.releasePointerCapture(pointerId);
    };
    pressed.addEventListener('pointermove', onMove);
    pressed.addEventListener('lostpointercapture', () => pressed.removeEventListener('pointermove', onMove), {
      once: true,
    });
  });
}
