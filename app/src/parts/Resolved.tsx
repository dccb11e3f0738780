// What a wish comes to, as the engine said it: memory against what is free, what it buys, and how it is spent.

import { useState } from "preact/hooks";
import * as api from "../api";
import type { Planned, Wish } from "../setup";
import { useSpeech } from "../words";
import { Fact } from "./Fields";
import { Icon } from "./Icon";

interface Props {
  planned: Planned;
  /** Whether it is of another wish than the one that stands there now. */
  isOld: boolean;
  wish: Wish;
  onMeasured: () => void;
  onProblem: (error: unknown) => void;
}

export function Resolved({ planned, isOld, wish, onMeasured, onProblem }: Props) {
  const { words, number, bytes } = useSpeech();
  const { setup } = words;
  const { expected } = planned;
  return (
    <section class={`resolved ${isOld ? "old" : ""}`} aria-label={setup.result} aria-busy={isOld}>
      <h3>{setup.result}</h3>
      <dl class="facts">
        <Fact name={setup.total}>{bytes(planned.total_bytes)}</Fact>
        <Fact name={words.context}>{setup.contextOf(number(planned.context), number(planned.max_context))}</Fact>
        {planned.layers > 0 && (
          <Fact name={words.slots}>
            {words.slotsMore(number(planned.slots), number(planned.slots / planned.layers, 1), number(planned.experts))}
          </Fact>
        )}
        <Fact name={setup.readsName}>{setup.reads[planned.reads]}</Fact>
        <Fact name={setup.speed}>
          {expected ? (
            setup.expected(number(expected.decode_tokens_per_s, 1), number(expected.prefill_tokens_per_s))
          ) : (
            <Measure wish={wish} onMeasured={onMeasured} onProblem={onProblem} />
          )}
        </Fact>
      </dl>
      <details>
        <summary>{words.plan}</summary>
        <PlanBars planned={planned} />
      </details>
    </section>
  );
}

/** Whether there is as much memory as it takes. */
export function Fits({ planned }: { planned: Planned }) {
  const { words, bytes } = useSpeech();
  const { setup } = words;
  const { free_bytes: free, total_bytes: total } = planned;
  if (free === null) return <p class="soft small">{setup.freeUnknown}</p>;
  if (planned.fits === false) {
    return <p class="problem" role="alert"><Icon name="warning" /><span>{setup.fitsNot(bytes(total), bytes(free))}</span></p>;
  }
  return <p class="row good" role="status"><Icon name="check" /><span>{setup.fits(bytes(free))}</span></p>;
}

function Measure({ wish, onMeasured, onProblem }: Pick<Props, "wish" | "onMeasured" | "onProblem">) {
  const { words } = useSpeech();
  const { setup } = words;
  const [isMeasuring, setMeasuring] = useState(false);
  const measure = () => {
    setMeasuring(true);
    api.measure(wish).then(onMeasured, onProblem).then(() => setMeasuring(false));
  };
  return (
    <span class="measure">
      <button type="button" class="plain small" disabled={isMeasuring} onClick={measure}>{isMeasuring ? setup.measuring : setup.measure}</button>
      <span class="soft small">{setup.measureMore}</span>
    </span>
  );
}

/** A bar for each use, the largest first, all on one scale. */
function PlanBars({ planned }: { planned: Planned }) {
  const { words, bytes } = useSpeech();
  const lines = [...planned.plan].sort((one, other) => other.bytes - one.bytes);
  const most = Math.max(1, ...lines.map((line) => line.bytes));
  return (
    <table class="plan bars">
      <caption class="heard">{words.plan}</caption>
      <tbody>
        {lines.map((line) => (
          <tr key={line.what}>
            <th scope="row" lang="en">{line.what}</th>
            <td class="bar-cell" aria-hidden="true"><i style={{ width: `${(100 * line.bytes) / most}%` }} /></td>
            <td>{bytes(line.bytes)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
