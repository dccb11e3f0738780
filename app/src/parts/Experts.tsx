// The expert cache at work: a row for each layer, a cell for each expert. What lies in memory is a bar at half height, what was found there just
// now fills its cell, and what was read just now is a bar at the cell's foot; so shapes say what colours say. The figures stand in a table below.

import { useEffect, useState } from "preact/hooks";
import * as api from "../api";
import type { Experts as Told } from "../wire";
import { useSpeech } from "../words";

/** As often as the engine is looked at. */
const LOOK_MS = 500;
/** Nothing happens then, but the model may be unloaded. */
const IDLE_MS = 4000;
/** Units of the drawing that a layer takes; an expert takes one across. */
const ROW = 4;
const [RESIDENT, HIT, READ] = [1, 2, 4];

export function Experts({ isAnswering }: { isAnswering: boolean }) {
  const { words, number, percent } = useSpeech();
  const told = useExperts(isAnswering);
  const hasExperts = told !== null && told.experts > 0 && told.layers.length > 0;
  return (
    <section class="experts" aria-label={words.experts}>
      <div class="gauge-line">
        <span>{words.experts}</span>
        {hasExperts && <span class="value">{words.expertsShape(number(told.layers.length), number(told.experts))}</span>}
      </div>
      {hasExperts ? <Grid told={told} /> : <p class="soft small">{words.noExperts}</p>}
      {hasExperts && (
        <>
          <ul class="legend small soft">
            {(["resident", "hit", "read"] as const).map((kind) => (
              <li key={kind}>
                <svg viewBox={`0 0 ${ROW} ${ROW}`} class={kind} aria-hidden="true"><path d={shape(kind, 0, 0, ROW)} /></svg>
                {words.expertMarks[kind]}
              </li>
            ))}
          </ul>
          <details class="small">
            <summary>{words.eachLayer}</summary>
            <table class="plan">
              <caption class="heard">{words.sinceLoaded}</caption>
              <thead>
                <tr>
                  {[words.layer, words.resident, words.hits, words.misses, words.hitRateShort].map((name, i) => (
                    <th key={i} scope="col">{name}</th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {told.layers.map((layer, l) => (
                  <tr key={l}>
                    <th scope="row">{number(l + 1)}</th>
                    <td>{number(residents(layer.marks))}</td>
                    <td>{number(layer.hits)}</td>
                    <td>{number(layer.misses)}</td>
                    <td>{layer.hits + layer.misses > 0 ? percent(layer.hits / (layer.hits + layer.misses)) : "–"}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </details>
        </>
      )}
    </section>
  );
}

/** Asks while the panel is open and the page is seen: often while an answer is made. */
function useExperts(isAnswering: boolean): Told | null {
  const [told, setTold] = useState<Told | null>(null);
  useEffect(() => {
    let isWanted = true;
    const look = () => {
      if (document.visibilityState !== "visible") return;
      // What goes wrong is said by the status line, which asks the same server.
      api.experts().then((experts) => isWanted && setTold(experts), () => undefined);
    };
    look();
    const timer = setInterval(look, isAnswering ? LOOK_MS : IDLE_MS);
    return () => {
      isWanted = false;
      clearInterval(timer);
    };
  }, [isAnswering]);
  return told;
}

function Grid({ told }: { told: Told }) {
  const { words, number } = useSpeech();
  const total = told.layers.reduce((sum, layer) => sum + residents(layer.marks), 0);
  const name = words.expertsSummary(number(total), number(told.experts * told.layers.length));
  return (
    <svg class="heat" viewBox={`0 0 ${told.experts} ${told.layers.length * ROW}`} preserveAspectRatio="none" role="img" aria-label={name}>
      {(["resident", "hit", "read"] as const).map((kind) => (
        <path key={kind} class={kind} d={path(told, kind)} />
      ))}
    </svg>
  );
}

type Kind = "resident" | "hit" | "read";
const BIT: Record<Kind, number> = { resident: RESIDENT, hit: HIT, read: READ };

const residents = (marks: string) => [...marks].filter((mark) => Number(mark) & RESIDENT).length;

/** All cells of a kind as one path; neighbours are drawn together. */
function path(told: Told, kind: Kind): string {
  const parts: string[] = [];
  told.layers.forEach(({ marks }, l) => {
    for (let from = 0; from < marks.length; from++) {
      let to = from;
      while (to < marks.length && Number(marks[to]) & BIT[kind]) to++;
      if (to > from) parts.push(shape(kind, from, l * ROW, to - from));
      from = Math.max(from, to);
    }
  });
  return parts.join("");
}

function shape(kind: Kind, x: number, y: number, width: number): string {
  const [top, height] = { resident: [1, ROW - 2], hit: [0, ROW - 0.5], read: [ROW - 2, 1.5] }[kind] as [number, number];
  return `M${x} ${y + top}h${width}v${height}h${-width}z`;
}
