import type { JSX } from 'preact';
import { useId } from 'preact/hooks';

interface ChoiceProps<T extends string> {
  label: string;
  options: readonly (readonly [value: T, text: string])[];
  value: T;
  onChange: (value: T) => void;
}

/** A few options in a row, of which one is chosen: radio buttons, so the arrow keys move between them. */
export function Choice<T extends string>({ label, options, value, onChange }: ChoiceProps<T>): JSX.Element {
  const name = useId();
  return (
    <fieldset class="choice">
      <legend class="unseen">{label}</legend>
      {options.map(([option, text]) => (
        <label key={option} class="choice-option">
          <input type="radio" name={name} value={option} checked={option === value} onChange={() => onChange(option)} />
          <span>{text}</span>
        </label>
      ))}
    </fieldset>
  );
}

interface SwitchProps {
  label: string;
  is_on: boolean;
  onChange: (is_on: boolean) => void;
  is_disabled?: boolean;
}

export function Switch({ label, is_on, onChange, is_disabled = false }: SwitchProps): JSX.Element {
  return (
    <label class="switch">
      <input
        type="checkbox"
        role="switch"
        checked={is_on}
        disabled={is_disabled}
        onChange={(event) => {
          const wanted = event.currentTarget.checked;
          // Shows the state of the service, not the last click.
          event.currentTarget.checked = is_on;
          onChange(wanted);
        }}
      />
      <span class="switch-track" aria-hidden="true" />
      {label}
    </label>
  );
}
