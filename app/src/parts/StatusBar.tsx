// The line at the foot of the page: what the engine is doing, and what that takes.

import { type Sample, summary } from "../history";
import type { Spent, Status } from "../wire";
import { useSpeech } from "../words";
import { Icon } from "./Icon";
import type { Live } from "./Message";

interface Props {
  status: Status | null;
  live: Live | null;
  /** Of the conversation's last answer, or of the one that is made. */
  spent: Spent | null;
  sample: Sample | undefined;
  isOpen: boolean;
  onToggle: () => void;
}

export function StatusBar({ status, live, spent, sample, isOpen, onToggle }: Props) {
  const { words, number, bytes, percent } = useSpeech();
  if (!status) return <footer class="status" />;
  const [done, total] = live?.prompt ?? [0, 0];
  const isReading = live?.phase === "reading" && total > 0;
  const doing = live ? (isReading ? words.reading(number(done), number(total)) : words[live.phase]) : status.is_answering ? words.elsewhere : words.idle;
  const totals = spent ? summary(spent) : null;
  const used = spent ? spent.prompt_tokens + spent.new_tokens : 0;
  const speed = totals?.tokensPerS;
  const hitRate = sample?.hitRate ?? totals?.hitRate;
  return (
    <footer class="status">
      <span class={`doing ${live || status.is_answering ? "busy" : ""}`}>{doing}</span>
      <span class="model">{status.model}</span>
      {speed != null && <Fact name={words.speed} value={words.tokensPerS(number(speed, 1))} isFirst />}
      <Fact name={words.context} value={words.ofTotal(number(used), number(status.context))} />
      {status.resident_bytes != null && (
        <Fact name={words.memory} value={words.ofTotal(bytes(status.resident_bytes), bytes(status.budget_bytes))} />
      )}
      {hitRate != null && <Fact name={words.hitRateShort} value={percent(hitRate)} />}
      {sample && <Fact name={words.bytesATokenShort} value={bytes(sample.bytesAToken)} />}
      <button type="button" class="quiet" aria-label={words.details} title={words.details} aria-expanded={isOpen} aria-controls="details" onClick={onToggle}>
        <Icon name="details" />
        <span>{words.details}</span>
      </button>
    </footer>
  );
}

function Fact({ name, value, isFirst }: { name: string; value: string; isFirst?: boolean }) {
  return (
    <span class={`fact ${isFirst ? "first" : ""}`}>
      <span class="soft">{name}</span> {value}
    </span>
  );
}
