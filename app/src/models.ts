// The models of this machine as the page has them, the work on their files, and what can be done. The server owns all of it; it is asked while
// somebody looks, and while something is under way.

import { useEffect, useRef, useState } from "preact/hooks";
import * as api from "./api";
import type { Installing, Shelf, Wish, Work } from "./setup";
import type { Status } from "./wire";

const RUNNING_EVERY_MS = 700;
const RESTING_EVERY_MS = 4000;

export interface Models {
  shelf: Shelf | null;
  installing: Installing | null;
  /** The model that this tab has asked for and that is not loaded yet. */
  opening: string | null;
  /** Loads a model; rejects where it is refused. */
  open(wish: Wish): Promise<void>;
  unload(): void;
  makeDefault(model: string): void;
  askHub(): void;
  start(work: Work): void;
  pause(): void;
  discard(): void;
}

interface Hooks {
  /** Whether models are on the screen. */
  isShown: boolean;
  /** The status is out of date. */
  onChange(): void;
  onProblem(error: unknown): void;
}

export const isUnderWay = ({ stage }: Installing) => stage === "running" || stage === "pausing";

export function useModels(status: Status | null, hooks: Hooks): Models {
  const { isShown } = hooks;
  const current = useRef(hooks);
  current.current = hooks;
  const [shelf, setShelf] = useState<Shelf | null>(null);
  const [opening, setOpening] = useState<string | null>(null);
  const onProblem = (error: unknown) => current.current.onProblem(error);
  const refresh = () => void api.models().then(setShelf, onProblem);
  const [installing, look] = useInstalling(shelf?.can_install ?? false, isShown, onProblem);
  const canChoose = status?.can_choose ?? false;
  useEffect(() => {
    if (canChoose) refresh();
  }, [canChoose, isShown, status?.model, installing?.stage, installing?.found.is_installed]);
  const act = (action: Promise<void>, then: () => void) => void action.catch(onProblem).then(then);
  const changed = () => {
    refresh();
    current.current.onChange();
  };
  return {
    shelf,
    installing,
    opening,
    async open(wish) {
      setOpening(wish.model ?? "");
      // The status says that it is loaded long before the answer comes.
      current.current.onChange();
      try {
        await api.open(wish);
      } finally {
        setOpening(null);
        changed();
      }
    },
    unload: () => act(api.unload(), changed),
    makeDefault: (model) => act(api.makeDefault(model), refresh),
    askHub: () => act(api.askHub(), look),
    start: (work) => act(api.startWork(work), () => {
      look();
      current.current.onChange();
    }),
    pause: () => act(api.pauseWork(), look),
    discard: () => act(api.discardWork(), () => {
      look();
      refresh();
    }),
  };
}

/** How the work on files stands, often while it is under way and now and then while it is seen. */
function useInstalling(canInstall: boolean, isShown: boolean, onProblem: (error: unknown) => void): [Installing | null, () => void] {
  const [installing, setInstalling] = useState<Installing | null>(null);
  const asked = useRef(0);
  const heard = useRef(0);
  const look = () => {
    const turn = ++asked.current;
    api.installing().then((installing) => {
      // An answer that was overtaken tells of the past.
      if (turn < heard.current) return;
      heard.current = turn;
      setInstalling(installing);
    }, onProblem);
  };
  const isBusy = installing !== null && (installing.is_asking || isUnderWay(installing));
  const everyMs = isBusy ? RUNNING_EVERY_MS : isShown ? RESTING_EVERY_MS : null;
  useEffect(() => {
    if (canInstall) look();
  }, [canInstall, isShown]);
  useEffect(() => {
    if (!canInstall || everyMs === null) return;
    const timer = setInterval(() => {
      if (document.visibilityState === "visible") look();
    }, everyMs);
    return () => clearInterval(timer);
  }, [canInstall, everyMs]);
  return [installing, look];
}
