// The work on a model's files: what there is to fetch, how far that is, and how it ended. Whoever shows it gives it all that is known.

import { isUnderWay, type Models } from "../models";
import type { Installing } from "../setup";
import { useSpeech } from "../words";
import { Bar } from "./Bar";
import { Icon } from "./Icon";
import { Offered } from "./Offered";

interface Props {
  models: Models;
  installing: Installing;
  onOpen: (model: string) => void;
}

/** Fetching the model that is not here yet; nothing where it is, and nothing was fetched just now. */
export function Download({ models, installing, onOpen }: Props) {
  const { words } = useSpeech();
  const { found, stage, work } = installing;
  const isOfThis = work?.what === "download" && stage !== "idle";
  const isBusy = isOfThis && isUnderWay(installing);
  if (found.is_installed && !isOfThis) return null;
  return (
    <section class="installation">
      <header>
        <h2>{words.setup.downloadTitle}</h2>
        <p class="soft small">{words.setup.downloadMore}</p>
      </header>
      {isBusy && <Working models={models} installing={installing} />}
      {isOfThis && !isBusy && <Outcome models={models} installing={installing} onOpen={onOpen} />}
      {!isBusy && !found.is_installed && <Offered models={models} installing={installing} />}
    </section>
  );
}

/** Verifying and repairing a model that is here; nothing where nobody asked for it. */
export function Check({ models, installing, onOpen }: Props) {
  const { words } = useSpeech();
  const { stage, work } = installing;
  if (!work || work.what === "download" || stage === "idle") return null;
  return (
    <section class="installation">
      <h2>{words.setup.filesOf(work.model)}</h2>
      {isUnderWay(installing) ? (
        <Working models={models} installing={installing} />
      ) : (
        <Outcome models={models} installing={installing} onOpen={onOpen} />
      )}
    </section>
  );
}

/** What is under way, however it was begun. */
function Working({ models, installing }: { models: Models; installing: Installing }) {
  const { words } = useSpeech();
  const { setup } = words;
  const progress = useProgress(installing);
  const isPausing = installing.stage === "pausing";
  return (
    <div class="working">
      <p class="gauge-line">
        <strong>{setup.working[installing.work?.what ?? "download"]}</strong>
        <span class="value">{progress.percent}</span>
      </p>
      <Bar name={setup.working[installing.work?.what ?? "download"]} done={installing.done_bytes} total={installing.total_bytes} text={progress.line} />
      <p class="soft small figures">{isPausing ? setup.pausing : progress.line}</p>
      {installing.retry && <p class="small notice" lang="en"><span lang={document.documentElement.lang}>{setup.retries}</span> {installing.retry}</p>}
      <div class="choices">
        <button type="button" class="plain" disabled={isPausing} onClick={models.pause}>{setup.pause}</button>
      </div>
    </div>
  );
}

/** How far it is, in words. */
export function useProgress(installing: Installing): { percent: string; line: string } {
  const { words, percent, bytes, duration } = useSpeech();
  const { setup } = words;
  const { phase, done_bytes, total_bytes, bytes_per_s, seconds_left } = installing;
  if (!phase) return { percent: "", line: setup.beginning };
  const line = [setup.phase[phase]];
  if (total_bytes > 0) line.push(setup.ofBytes(bytes(done_bytes), bytes(total_bytes)));
  if (bytes_per_s !== null) line.push(setup.rate(bytes(bytes_per_s)));
  if (seconds_left !== null) line.push(setup.left(duration(seconds_left)));
  return { percent: total_bytes > 0 ? percent(Math.floor((100 * done_bytes) / total_bytes) / 100) : "", line: line.join(" · ") };
}

/** How the work ended that was done last, and what can be done now. */
function Outcome({ models, installing, onOpen }: Props) {
  const { words } = useSpeech();
  const { setup } = words;
  const { stage, work, model } = installing;
  if (stage === "done" && model) {
    return (
      <div class="outcome" role="status">
        <p class="row good"><Icon name="check" /><span>{setup.whole(model)}</span></p>
        {work?.what === "download" && (
          <div class="choices">
            <button type="button" class="primary" onClick={() => onOpen(model)}>{setup.openModel}</button>
          </div>
        )}
      </div>
    );
  }
  if (!work) return null;
  if (stage === "paused") {
    // A download that was paused is told of where it is offered.
    if (work.what === "download") return null;
    return (
      <div class="choices">
        <span class="soft">{setup.paused}</span>
        <button type="button" class="plain" onClick={() => models.start(work)}>{setup.resume}</button>
      </div>
    );
  }
  const isDamaged = stage === "damaged" && model !== null;
  return (
    <div class="outcome">
      <div class="problem" role="alert">
        <Icon name="warning" />
        <div>
          <strong>{isDamaged ? setup.damaged(model) : setup.failed[work.what]}</strong>
          {installing.problem && <p lang="en">{installing.problem}</p>}
          {installing.damage.length > 0 && (
            <ul class="damage small" lang="en">{installing.damage.map((line) => <li key={line}>{line}</li>)}</ul>
          )}
        </div>
      </div>
      <div class="choices">
        {isDamaged ? (
          <button type="button" class="primary" onClick={() => models.start({ what: "repair", model })}>{setup.repair}</button>
        ) : (
          <button type="button" class="primary" onClick={() => models.start(work)}>{words.tryAgain}</button>
        )}
      </div>
    </div>
  );
}
