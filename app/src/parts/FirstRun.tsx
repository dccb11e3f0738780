// Where no model is chosen: what there is to choose from, at once or after a download.

import type { Models } from "../models";
import type { Listed } from "../setup";
import type { Loading } from "../wire";
import { useSpeech } from "../words";
import { Bar } from "./Bar";
import { Icon } from "./Icon";
import { Check, Download } from "./Installation";

interface Props {
  models: Models;
  /** Whether a model is on its way into memory. */
  isLoading: boolean;
  loading: Loading | null;
  /** Shows what it would take. */
  onChoose: (model: string | null) => void;
  onProblem: (error: unknown) => void;
}

export function FirstRun({ models, isLoading, loading, onChoose, onProblem }: Props) {
  const { words } = useSpeech();
  const { setup } = words;
  const { shelf, installing, opening } = models;
  if (!shelf) return <div class="scroller" />;
  const demo = shelf.models.find((model) => model.is_demo && model.state === "complete");
  // What is being fetched has a card of its own.
  const fetched = installing?.found.model;
  const installed = shelf.models.filter((model) => !model.is_demo && (model.state === "complete" || model.name !== fetched));
  return (
    <div class="scroller">
      <section class="first-run" aria-labelledby="first-run">
        <header>
          <img src="/assets/icon.svg" alt="" width="64" height="64" />
          <h1 id="first-run" tabIndex={-1}>{setup.choose}</h1>
          <p class="soft">{setup.chooseMore}</p>
        </header>
        {shelf.problem && <p class="problem" role="alert"><Icon name="warning" /><span lang="en">{shelf.problem}</span></p>}
        {(opening !== null || isLoading) && (
          <div class="card working">
            <p role="status">{opening ? setup.opening(opening) : words.loading}</p>
            <Bar name={words.loading} done={loading?.done_bytes} total={loading?.total_bytes} />
          </div>
        )}
        <div class="ways">
          {installing && (
            <div class="card">
              <Check models={models} installing={installing} onOpen={onChoose} />
              <Download models={models} installing={installing} onOpen={onChoose} />
            </div>
          )}
          <div class="others">
            {installed.length > 0 && <Installed models={installed} onChoose={onChoose} />}
            {demo && <Demo demo={demo} isBusy={opening !== null || isLoading} onOpen={() => models.open({ model: demo.name }).catch(onProblem)} />}
          </div>
        </div>
      </section>
    </div>
  );
}

function Installed({ models, onChoose }: { models: Listed[]; onChoose: (model: string | null) => void }) {
  const { words, bytes } = useSpeech();
  const { setup } = words;
  return (
    <section class="card">
      <h2>{setup.installed}</h2>
      <ul class="plain-list">
        {models.map((model) => (
          <li key={model.name}>
            <p>{model.name}</p>
            <p class="soft small">{[model.bytes > 0 ? bytes(model.bytes) : null, setup.state[model.state]].filter(Boolean).join(" · ")}</p>
            <button type="button" class="plain" aria-label={setup.about(model.state === "complete" ? setup.open : words.details, model.name)} onClick={() => onChoose(model.name)}>
              {model.state === "complete" ? setup.open : words.details}
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Demo({ demo, isBusy, onOpen }: { demo: Listed; isBusy: boolean; onOpen: () => void }) {
  const { words, bytes } = useSpeech();
  const { setup } = words;
  return (
    <section class="card">
      <h2>{setup.atOnce}</h2>
      <p class="soft small">{setup.bundledMore(bytes(demo.bytes))}</p>
      <button type="button" class="plain" disabled={isBusy} onClick={onOpen}>{setup.bundled}</button>
    </section>
  );
}
