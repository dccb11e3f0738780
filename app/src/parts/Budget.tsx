// What a model may take of the machine. A person wishes, the engine says what that comes to, and only what it said is shown.

import { useEffect, useState } from "preact/hooks";
import * as api from "../api";
import type { Io, Planned, Wish } from "../setup";
import type { Loading, Refusal } from "../wire";
import { useSpeech } from "../words";
import { Bar } from "./Bar";
import { Field, NumberField, Wrong } from "./Fields";
import { Icon } from "./Icon";
import { Memory } from "./Memory";
import { Fits, Resolved } from "./Resolved";

/** A moment after the last change: a plan takes some work. */
const PAUSE_MS = 250;

interface Props {
  model: string;
  /** How it is loaded, or would be. */
  wish: Wish;
  isLoaded: boolean;
  /** The model that is on its way into memory. */
  loading: string | null;
  /** How far it is, where that is known. */
  progress: Loading | null;
  onLoad: (wish: Wish) => Promise<void>;
  onProblem: (error: unknown) => void;
}

/** More than the server counts to. */
const MOST = 2 ** 32 - 1;

/** The fields that a refusal can be about. */
const FIELDS = ["model", "memory_bytes", "context", "slots", "io"] as const;
type FieldName = (typeof FIELDS)[number];

/** Why a wish cannot be had, if it is about one of its fields. */
function refusalOf(error: unknown): Refusal | null {
  const refusal = error instanceof api.Refused ? error.refusal : null;
  return FIELDS.some((field) => field === refusal?.param) ? refusal : null;
}

const isSame = (one: Wish, other: Wish) =>
  FIELDS.every((field) => field === "model" || (one[field] ?? null) === (other[field] ?? null) || (field === "io" && isAuto(one) && isAuto(other)));
const isAuto = (wish: Wish) => (wish.io ?? "auto") === "auto";

export function Budget({ model, wish: before, isLoaded, loading, progress, onLoad, onProblem }: Props) {
  const { words, number } = useSpeech();
  const { setup } = words;
  const [wish, setWish] = useState<Wish>({ ...before, model });
  const { planned, refusal, isPlanning, setRefusal, replan } = usePlan(wish, onProblem);
  const change = (change: Partial<Wish>) => setWish((wish) => ({ ...wish, ...change }));
  const problem = (field: FieldName) => (refusal?.param === field ? refusal.message : null);
  const isUnchanged = isLoaded && isSame(wish, before);
  const load = (event: SubmitEvent) => {
    event.preventDefault();
    onLoad(wish).catch((error) => {
      setRefusal(refusalOf(error));
      if (!refusalOf(error)) onProblem(error);
    });
  };
  return (
    <form class="budget" aria-label={setup.budget} onSubmit={load}>
      {problem("model") && <p class="problem" role="alert"><Icon name="warning" /><span lang="en">{problem("model")}</span></p>}
      <Memory value={wish.memory_bytes ?? null} planned={planned} problem={problem("memory_bytes")} onSet={(memory_bytes) => change({ memory_bytes })} />
      {planned && !refusal && <Fits planned={planned} />}
      <div class="grid">
        <NumberField isLive name={setup.contextTokens} value={wish.context ?? null} min={1} max={MOST} step={1} placeholder={planned ? String(planned.context) : ""} hint={planned ? setup.contextHint(number(planned.max_context)) : ""}
          problem={problem("context")} onSet={(context) => change({ context })} />
        <NumberField isLive name={setup.slotsALayer} value={wish.slots ?? null} min={0} max={MOST} step={1}
          placeholder={planned && planned.layers > 0 ? String(Math.floor(planned.slots / planned.layers)) : ""} hint={setup.slotsHint}
          problem={problem("slots")} onSet={(slots) => change({ slots })} />
      </div>
      <Field name={setup.io}>
        <select value={wish.io ?? "auto"} onChange={(event) => change({ io: event.currentTarget.value as Io })}>
          {(["auto", "direct", "buffered"] as const).map((io) => <option key={io} value={io}>{setup.ios[io]}</option>)}
        </select>
        <Wrong message={problem("io")} />
      </Field>
      {planned && <Resolved planned={planned} isOld={isPlanning || refusal !== null} wish={wish} onMeasured={replan} onProblem={onProblem} />}
      {loading !== null ? (
        <div class="working">
          <p role="status">{setup.opening(loading)}</p>
          <Bar name={words.loading} done={progress?.done_bytes} total={progress?.total_bytes} />
        </div>
      ) : (
        <div class="choices">
          {isLoaded && <span class="soft small">{isUnchanged ? setup.sameLoaded : setup.reloadNote}</span>}
          <button type="submit" class="primary" disabled={isUnchanged || isPlanning || refusal !== null}>{isLoaded ? setup.reload : setup.loadNow}</button>
        </div>
      )}
    </form>
  );
}

interface Plan {
  /** The last one that could be had. */
  planned: Planned | null;
  refusal: Refusal | null;
  isPlanning: boolean;
  setRefusal: (refusal: Refusal | null) => void;
  replan: () => void;
}

/** What a wish comes to, asked a moment after it was changed. */
function usePlan(wish: Wish, onProblem: (error: unknown) => void): Plan {
  const [planned, setPlanned] = useState<Planned | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [isPlanning, setPlanning] = useState(true);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let isWanted = true;
    setPlanning(true);
    const answered = (planned: Planned | null, error: unknown) => {
      if (!isWanted) return;
      setPlanning(false);
      setRefusal(refusalOf(error));
      if (planned) setPlanned(planned);
      else if (!refusalOf(error)) onProblem(error);
    };
    const timer = setTimeout(() => {
      api.plan(wish).then((planned) => answered(planned, null), (error) => answered(null, error));
    }, turn > 0 || planned ? PAUSE_MS : 0);
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  }, [wish, turn]);
  return { planned, refusal, isPlanning, setRefusal, replan: () => setTurn((turn) => turn + 1) };
}
