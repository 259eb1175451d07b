/** Icons, drawn on a grid of 16, in the colour of the text beside them. */
import type { JSX } from 'preact';

const PATHS = {
  now: 'M1.5 8.5h3l2-5.5 3 10 2-4.5h3',
  meetings: 'M2 3.5h9v6H6l-2.5 2.5V9.5H2zM13 6.5h1.5v6H13v2l-2-2H7.5',
  instances: 'M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.01M5 11h.01',
  deliveries: 'M1.5 8h9M7.5 4.5 11 8l-3.5 3.5M14 3v10',
  keys: 'M9.5 6.5a3 3 0 1 0-2.4 2.94L8 9.5h1.5V11H11v1.5h2.5V10L9.4 6M5.5 5.5h.01',
  audit: 'M3.5 2h9v12h-9zM6 5h4M6 8h4M6 11h2.5',
  nodes:
    'M8 2.5v3M8 5.5 4 10M8 5.5l4 4.5M8 4a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3zM3.5 13.5a1.8 1.8 0 1 0 0-3.6 1.8 1.8 0 0 0 0 3.6zM12.5 13.5a1.8 1.8 0 1 0 0-3.6 1.8 1.8 0 0 0 0 3.6z',
  start: 'M3 8.5 6.5 12 13 4.5',
  copy: 'M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3',
  done: 'M3 8.5 6.5 12 13 4.5',
  close: 'M4 4l8 8M12 4l-8 8',
  back: 'M10 3 5 8l5 5',
  more: 'M3.5 8h.01M8 8h.01M12.5 8h.01',
  plus: 'M8 3v10M3 8h10',
  search: 'M7 12a5 5 0 1 0 0-10 5 5 0 0 0 0 10zM10.6 10.6 14 14',
  help: 'M6 6.2C6 5 6.9 4.2 8 4.2s2 .7 2 1.9c0 1.4-2 1.6-2 3.1M8 11.8h.01M8 14.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13z',
  out: 'M6.5 2.5h-4v11h4M6 8h8M11 5l3 3-3 3',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }): JSX.Element {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}

/** Three lanes that leave one place. */
export function Brand(): JSX.Element {
  return (
    <svg class="brand-sign" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <rect class="brand-ground" width="24" height="24" rx="6" />
      <g class="brand-lanes">
        <path d="M6 12h4" />
        <path d="M10 12c3 0 2.5-5 5.5-5" />
        <path d="M10 12h5.5" />
        <path d="M10 12c3 0 2.5 5 5.5 5" />
      </g>
      <g class="brand-ends">
        <circle cx="17.5" cy="7" r="1.6" />
        <circle cx="17.5" cy="12" r="1.6" />
        <circle cx="17.5" cy="17" r="1.6" />
      </g>
    </svg>
  );
}
