// What forms are made of: a field with its name, and a fact with its name.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { useSpeech } from "../words";

export function Field({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <label class="field">
      <span>{name}</span>
      {children}
    </label>
  );
}

interface NumberProps {
  name: string;
  value: number | null;
  min: number;
  max: number;
  step: number;
  hint: string | undefined;
  placeholder?: string;
  /** Why the server will not have it, in its words. */
  problem?: string | null;
  /** Hears of each letter, and not only of the finished number. */
  isLive?: boolean;
  onSet: (value: number | null) => void;
}

/** A number that may be left to the engine. What is no number of the range is shown as wrong and not set. */
export function NumberField({ name, value, min, max, step, hint, placeholder, problem = null, isLive = false, onSet }: NumberProps) {
  const { words } = useSpeech();
  const [isWrong, setWrong] = useState(false);
  const change = (field: HTMLInputElement) => {
    const isValid = field.checkValidity();
    setWrong(!isValid);
    if (isValid) onSet(field.value === "" ? null : field.valueAsNumber);
  };
  const heard = { [isLive ? "onInput" : "onChange"]: (event: Event) => change(event.currentTarget as HTMLInputElement) };
  return (
    <Field name={name}>
      <input type="number" inputMode={step % 1 ? "decimal" : "numeric"} defaultValue={value ?? ""} min={min} max={max} step={step} placeholder={placeholder}
        aria-invalid={isWrong || problem !== null} {...heard} />
      {isWrong ? <Wrong message={words.setup.wrongNumber} /> : <Wrong message={problem} isEnglish />}
      {hint && <span class="soft small">{hint}</span>}
    </Field>
  );
}

/** Why a field cannot be had. */
export function Wrong({ message, isEnglish }: { message: string | null; isEnglish?: boolean }) {
  if (!message) return null;
  return <span class="wrong small" role="alert" lang={isEnglish ? "en" : undefined}>{message}</span>;
}

export function Fact({ name, children }: { name: ComponentChildren; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
