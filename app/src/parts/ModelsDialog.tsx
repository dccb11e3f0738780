// The models of this machine: which there are, what one would take, loading one, and the work on their files.

import { useState } from "preact/hooks";
import { isUnderWay, type Models } from "../models";
import type { Listed, Shelf } from "../setup";
import type { Status } from "../wire";
import { useSpeech } from "../words";
import { Budget } from "./Budget";
import { Dialog } from "./Dialog";
import { Icon } from "./Icon";
import { Check, Download } from "./Installation";

interface Props {
  models: Models;
  status: Status | null;
  /** The one that is shown first, where another is meant than the one that is loaded. */
  first: string | null;
  problem: string | null;
  onLoaded: () => void;
  onProblem: (error: unknown) => void;
  onClose: () => void;
}

export function ModelsDialog(props: Props) {
  const { models, status, problem, onProblem, onClose } = props;
  const { words } = useSpeech();
  const { setup } = words;
  const { shelf, installing } = models;
  const [wanted, setWanted] = useState(props.first);
  const named = (name: string | null | undefined) => shelf?.models.find((model) => model.name === name);
  // The chosen one may be gone; the others are there all the same.
  const selected = named(wanted) ?? named(shelf?.chosen) ?? shelf?.models[0];
  const isChosen = selected !== undefined && selected.name === shelf?.chosen;
  const loading = models.opening ?? (status?.is_loading ? status.model : null);
  return (
    <Dialog title={setup.title} onClose={onClose} isWide>
      {problem && <p class="problem" role="alert">{problem}</p>}
      {shelf?.problem && <p class="problem"><Icon name="warning" /><span lang="en">{shelf.problem}</span></p>}
      {shelf && selected && (
        <fieldset>
          <legend>{setup.models}</legend>
          <List shelf={shelf} selected={selected.name} isLoaded={status?.is_loaded ?? false} onSelect={setWanted} />
          <Tools models={models} shelf={shelf} selected={selected} status={status} />
          {installing && <Check models={models} installing={installing} onOpen={setWanted} />}
        </fieldset>
      )}
      {shelf && selected?.state === "complete" && (
        <fieldset>
          <legend>{setup.budget}</legend>
          <Budget
            key={`${selected.name} ${isChosen ? JSON.stringify(shelf.wish) : ""}`}
            model={selected.name} wish={isChosen ? shelf.wish : {}}
            isLoaded={isChosen && (status?.is_loaded ?? false)} loading={loading} progress={status?.loading ?? null}
            onLoad={(wish) => models.open(wish).then(props.onLoaded)} onProblem={onProblem}
          />
        </fieldset>
      )}
      {installing && (
        <div class="fieldset"><Download models={models} installing={installing} onOpen={setWanted} /></div>
      )}
    </Dialog>
  );
}

interface ListProps {
  shelf: Shelf;
  selected: string;
  isLoaded: boolean;
  onSelect: (name: string) => void;
}

function List({ shelf, selected, isLoaded, onSelect }: ListProps) {
  const { words, bytes } = useSpeech();
  const { setup } = words;
  const about = (model: Listed) => {
    const isInMemory = isLoaded && model.name === shelf.chosen;
    return [model.bytes > 0 ? bytes(model.bytes) : null, isInMemory ? setup.isLoaded : setup.state[model.state]].filter(Boolean).join(" · ");
  };
  return (
    <div class="models" role="radiogroup" aria-label={setup.models}>
      {shelf.models.map((model) => (
        <label key={model.name} class="model-line">
          <input type="radio" name="model" checked={model.name === selected} onChange={() => onSelect(model.name)} />
          <span class="model-name">
            {model.name}
            {model.is_default && <span class="tag">{setup.isDefault}</span>}
            {model.is_demo && <span class="tag">{setup.isDemo}</span>}
          </span>
          <span class="soft small">{about(model)}</span>
        </label>
      ))}
    </div>
  );
}

interface ToolsProps {
  models: Models;
  shelf: Shelf;
  selected: Listed;
  status: Status | null;
}

/** What can be done with the model that is selected, beside loading it. */
function Tools({ models, shelf, selected, status }: ToolsProps) {
  const { words } = useSpeech();
  const { setup } = words;
  const { installing } = models;
  const { name, state, why } = selected;
  const isHere = state === "complete" || state === "broken";
  const canWork = shelf.can_install && isHere && !(installing && isUnderWay(installing));
  const isInMemory = name === shelf.chosen && status?.is_loaded;
  return (
    <>
      {why && <p class="problem"><Icon name="warning" /><span lang="en">{why}</span></p>}
      <div class="row tools">
        {state === "complete" && !selected.is_demo && !selected.is_default && (
          <button type="button" class="plain" title={setup.makeDefaultMore} onClick={() => models.makeDefault(name)}>{setup.makeDefault}</button>
        )}
        {canWork && <button type="button" class="plain" onClick={() => models.start({ what: "verify", model: name })}>{setup.verify}</button>}
        {canWork && state === "broken" && (
          <button type="button" class="plain" onClick={() => models.start({ what: "repair", model: name })}>{setup.repair}</button>
        )}
        {isInMemory && (
          <button type="button" class="plain" disabled={status.is_answering} onClick={models.unload}>{words.unload}</button>
        )}
      </div>
    </>
  );
}
