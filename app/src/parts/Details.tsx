// The panel beside the conversation: how fast the model writes, what it finds in memory and what it reads, and where the memory goes.

import type { ComponentChildren } from "preact";
import type { Sample } from "../history";
import type { Spent, Status } from "../wire";
import { useSpeech } from "../words";
import { Experts } from "./Experts";
import { Icon } from "./Icon";

interface Props {
  status: Status;
  spent: Spent | null;
  samples: Sample[];
  /** Whether the conversation on the page is being answered, which is known before the status says so. */
  isLive: boolean;
  onClose: () => void;
}

export function Details({ status, spent, samples, isLive, onClose }: Props) {
  const { words, number, bytes, percent } = useSpeech();
  const last = samples[samples.length - 1];
  const used = spent ? spent.prompt_tokens + spent.new_tokens : 0;
  const resident = status.resident_bytes;
  return (
    <aside id="details" class="details" aria-label={words.details}>
      <header>
        <h2>{words.details}</h2>
        <button type="button" class="quiet" aria-label={words.close} onClick={onClose}>
          <Icon name="close" />
        </button>
      </header>
      <Gauge name={words.memory} used={resident ?? 0} total={status.budget_bytes}>
        {words.ofTotal(resident == null ? "?" : bytes(resident), bytes(status.budget_bytes))}
      </Gauge>
      <Gauge name={words.context} used={used} total={status.context}>
        {words.ofTotal(number(used), words.tokens(number(status.context)))}
      </Gauge>
      <p class="soft small">{words.detailsMore}</p>
      {last ? (
        <>
          <Curve name={words.speed} values={samples.map((s) => s.tokensPerS)}>
            {words.tokensPerS(number(last.tokensPerS, 1))}
          </Curve>
          <Curve name={words.hitRate} values={samples.map((s) => s.hitRate ?? 0)} most={1}>
            {last.hitRate == null ? "–" : percent(last.hitRate)}
          </Curve>
          <Curve name={words.bytesAToken} values={samples.map((s) => s.bytesAToken)}>
            {bytes(last.bytesAToken)}
          </Curve>
        </>
      ) : (
        <p class="hint">{words.noData}</p>
      )}
      <Experts isAnswering={status.is_answering || isLive} />
      {status.slots > 0 && status.layers > 0 && (
        <p class="small">
          <span class="soft">{words.slots}: </span>
          {words.slotsMore(number(status.slots), number(status.slots / status.layers, 1), number(status.experts))}
        </p>
      )}
      {status.plan.length > 0 && (
        <table class="plan">
          <caption>{words.plan}</caption>
          <tbody>
            {status.plan.map((line) => (
              <tr key={line.what}>
                <th scope="row" lang="en">{line.what}</th>
                <td>{bytes(line.bytes)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </aside>
  );
}

function Gauge({ name, used, total, children }: { name: string; used: number; total: number; children: ComponentChildren }) {
  return (
    <div class="gauge">
      <div class="gauge-line">
        <span>{name}</span>
        <span class="value">{children}</span>
      </div>
      <meter min={0} max={Math.max(1, total)} value={Math.min(used, total)} aria-label={name} />
    </div>
  );
}

const [WIDTH, HEIGHT] = [240, 44];

/** A curve over the samples, oldest left. What it shows is said in numbers beside it. */
function Curve({ name, values, most, children }: { name: string; values: number[]; most?: number; children: ComponentChildren }) {
  const top = most ?? Math.max(...values, 1e-9) * 1.1;
  const step = WIDTH / Math.max(1, values.length - 1);
  const points = values.map((value, i) => `${(i * step).toFixed(1)},${(HEIGHT - (value / top) * (HEIGHT - 4) - 2).toFixed(1)}`);
  const line = points.length > 1 ? points : [`0,${points[0]?.split(",")[1]}`, `${WIDTH},${points[0]?.split(",")[1]}`];
  return (
    <div class="curve">
      <div class="gauge-line">
        <span>{name}</span>
        <span class="value">{children}</span>
      </div>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
        <polygon points={`0,${HEIGHT} ${line.join(" ")} ${WIDTH},${HEIGHT}`} />
        <polyline points={line.join(" ")} />
      </svg>
    </div>
  );
}
