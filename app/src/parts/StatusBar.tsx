// The line at the foot of the page: what the engine is doing, and what that takes.

import { type Sample, summary } from "../history";
import { isUnderWay } from "../models";
import type { Installing } from "../setup";
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
  installing: Installing | null;
  onModels: () => void;
  isOpen: boolean;
  onToggle: () => void;
}

export function StatusBar({ status, live, spent, sample, installing, onModels, isOpen, onToggle }: Props) {
  const { words, number, bytes, percent } = useSpeech();
  if (!status) return <footer class="status" />;
  const [done, total] = live?.prompt ?? [0, 0];
  const isReading = live?.phase === "reading" && total > 0;
  const resting = status.is_loading ? words.loading : status.is_answering ? words.elsewhere : status.model ? words.idle : words.setup.noneChosen;
  const doing = !live ? resting : isReading ? words.reading(number(done), number(total)) : words[live.phase];
  const totals = spent ? summary(spent) : null;
  const used = spent ? spent.prompt_tokens + spent.new_tokens : 0;
  const speed = totals?.tokensPerS;
  const hitRate = sample?.hitRate ?? totals?.hitRate;
  return (
    <footer class="status">
      <span class={`doing ${live || status.is_answering || status.is_loading ? "busy" : ""}`}>{doing}</span>
      {status.can_choose ? (
        <button type="button" class="model" title={words.setup.openDialog} onClick={onModels}>{status.model || words.setup.chooseOne}</button>
      ) : (
        <span class="model">{status.model}</span>
      )}
      {installing && isUnderWay(installing) && <Work installing={installing} onModels={onModels} />}
      {speed != null && <Fact name={words.speed} value={words.tokensPerS(number(speed, 1))} isFirst />}
      {status.model && <Fact name={words.context} value={words.ofTotal(number(used), number(status.context))} />}
      {status.model && status.resident_bytes != null && (
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

/** The work on a model's files, in short. */
function Work({ installing, onModels }: { installing: Installing; onModels: () => void }) {
  const { words, percent } = useSpeech();
  const { done_bytes: done, total_bytes: total } = installing;
  const working = words.setup.working[installing.work?.what ?? "download"];
  return (
    <button type="button" class="work" onClick={onModels}>
      {total > 0 ? words.setup.barLine(working, percent(Math.floor((100 * done) / total) / 100)) : `${working} …`}
    </button>
  );
}

function Fact({ name, value, isFirst }: { name: string; value: string; isFirst?: boolean }) {
  return (
    <span class={`fact ${isFirst ? "first" : ""}`}>
      <span class="soft">{name}</span> {value}
    </span>
  );
}
