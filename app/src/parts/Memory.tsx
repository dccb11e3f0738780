// How much memory a model may take: a slider for the eye and a field for the number, which say the same.

import { useEffect, useState } from "preact/hooks";
import type { Planned } from "../setup";
import { useSpeech } from "../words";
import { Field, Wrong } from "./Fields";

const GIB = 1024 ** 3;
/** More is no memory but a slip of the hand. */
const MOST_GIB = 1024 ** 2;
/** From the least to the most in steps of equal ratio, since twice the memory is as much of a change anywhere. */
const STEPS = 200;
/** Where the system does not say what is free, a plan may become so much larger. */
const UNKNOWN_MOST = 4;

interface Props {
  /** None leaves it to the engine. */
  value: number | null;
  planned: Planned | null;
  problem: string | null;
  onSet: (bytes: number | null) => void;
}

export function Memory({ value, planned, problem, onSet }: Props) {
  const { words, bytes } = useSpeech();
  const { setup } = words;
  const [text, setText] = useState(value === null ? "" : inGib(value));
  const [isWrong, setWrong] = useState(false);
  const write = (text: string) => {
    setText(text);
    const gib = Number(text);
    const isValid = text === "" || (gib > 0 && gib < MOST_GIB);
    setWrong(!isValid);
    if (isValid) onSet(text === "" ? null : Math.round(gib * GIB));
  };
  return (
    <div class="memory">
      {planned && <Slider value={value ?? planned.total_bytes} planned={planned} onSet={(bytes) => write(inGib(bytes, planned.smallest_bytes))} />}
      <Field name={setup.memoryGib}>
        <input type="number" inputMode="decimal" min={0} step="any" value={text} placeholder={planned ? inGib(planned.total_bytes) : ""} aria-invalid={isWrong || problem !== null}
          onInput={(event) => write(event.currentTarget.validity.badInput ? "?" : event.currentTarget.value)} />
        {isWrong ? <Wrong message={setup.wrongNumber} /> : <Wrong message={problem} isEnglish />}
        <span class="soft small">{planned ? setup.memoryHint(bytes(planned.smallest_bytes)) : ""}</span>
      </Field>
    </div>
  );
}

/** Few digits, and neither more than was meant nor less than the least. */
function inGib(bytes: number, least = 0): string {
  const scale = bytes < GIB ? 1e4 : 1e2;
  const gib = Math.floor((bytes / GIB) * scale);
  return String((gib * GIB < least * scale ? gib + 1 : gib) / scale);
}

function Slider({ value, planned, onSet }: { value: number; planned: Planned; onSet: (bytes: number) => void }) {
  const { words, bytes } = useSpeech();
  const { setup } = words;
  const least = useLeast(planned.smallest_bytes);
  const most = Math.max(planned.free_bytes ?? UNKNOWN_MOST * planned.total_bytes, planned.total_bytes, 1.01 * least);
  const ratio = Math.log(most / least);
  const at = Math.round((STEPS * Math.log(Math.min(Math.max(value, least), most) / least)) / ratio);
  return (
    <label class="field">
      <span class="gauge-line"><span>{setup.memory}</span><span class="value">{bytes(value)}</span></span>
      <input type="range" min={0} max={STEPS} step={1} value={at} aria-valuetext={bytes(value)}
        onInput={(event) => onSet(least * Math.exp((ratio * event.currentTarget.valueAsNumber) / STEPS))} />
      <span class="gauge-line soft small"><span>{bytes(least)}</span><span>{bytes(most)}</span></span>
    </label>
  );
}

/** What the engine calls the least may move with the memory where the context does; the slider's end stays where it was while it is drawn lower. */
function useLeast(smallest: number): number {
  const [least, setLeast] = useState(smallest);
  useEffect(() => setLeast((least) => Math.min(least, smallest)), [smallest]);
  return Math.min(least, smallest);
}
