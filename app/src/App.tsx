// The page: who is in, which conversation is open, what the engine does, and what goes wrong.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import * as api from "./api";
import { UnfitFile } from "./attachments";
import { useConversation } from "./conversation";
import { History } from "./history";
import { useModels } from "./models";
import { Chat } from "./parts/Chat";
import { ChatHeader } from "./parts/ChatHeader";
import { Details } from "./parts/Details";
import { FirstRun } from "./parts/FirstRun";
import { Icon } from "./parts/Icon";
import { Lock } from "./parts/Lock";
import { ModelsDialog } from "./parts/ModelsDialog";
import { SettingsDialog } from "./parts/SettingsDialog";
import { Sidebar } from "./parts/Sidebar";
import { StatusBar } from "./parts/StatusBar";
import type { ChatLine, Entrance, Larger, Refusal, Settings, Status } from "./wire";
import { browserLanguage, speech, type Speech, Spoken, useSpeech } from "./words";

const STATUS_EVERY_MS = 2000;
const LOADING_EVERY_MS = 300;
const SEARCH_PAUSE_MS = 150;

const UNSET: Settings = {
  system: "", thinking: false, temperature: null, top_p: null, top_k: null, max_new: null,
  theme: null, language: null, enter_is_newline: false, engine: {},
};

/** What stands behind `#`: a conversation, or nothing. */
const chatOfAddress = () => {
  const id = /^#\/(\d+)$/.exec(location.hash)?.[1];
  return id ? Number(id) : null;
};

/** As in the style: where the list lies over the conversation. */
const NARROW = "(max-width: 52rem)";
const TOKEN = /^#([0-9a-f]{48})$/;

/** Hands in the token that the address carries, and takes it out of the address and of the history. */
async function comeIn(): Promise<Entrance> {
  const token = TOKEN.exec(location.hash)?.[1];
  if (token) {
    history.replaceState(null, "", "/");
    // One that was used before may come with a browser that is in already.
    await api.enter({ token }).catch(() => undefined);
  }
  return api.entrance();
}

export function App() {
  const [entrance, setEntrance] = useState<Entrance | null>(null);
  const [isLost, setLost] = useState(false);
  const [settings, setSettings] = useState<Settings>(UNSET);
  const enter = useCallback(async () => {
    try {
      const entrance = await comeIn();
      if (entrance.is_inside) setSettings(await api.settings());
      setEntrance(entrance);
    } catch {
      setLost(true);
    }
  }, []);
  useEffect(() => {
    // Also when the address that Ouzel printed is put into a tab that is open.
    const arrived = () => {
      if (TOKEN.test(location.hash)) void enter();
    };
    void enter();
    addEventListener("hashchange", arrived);
    return () => removeEventListener("hashchange", arrived);
  }, []);
  const spoken = speech(settings.language ?? browserLanguage());
  useEffect(() => {
    document.documentElement.lang = spoken.language;
    if (settings.theme) document.documentElement.dataset.theme = settings.theme;
    else delete document.documentElement.dataset.theme;
  }, [spoken.language, settings.theme]);
  const page = () => {
    if (!entrance) return <p class="hint">{isLost ? spoken.words.lost : spoken.words.connecting}</p>;
    if (!entrance.is_inside) return <Lock takesKey={entrance.takes_key} onOpen={enter} />;
    return <Inside settings={settings} onSettings={setSettings} onLocked={enter} />;
  };
  return <Spoken.Provider value={spoken}>{page()}</Spoken.Provider>;
}

interface InsideProps {
  settings: Settings;
  onSettings: (settings: Settings) => void;
  onLocked: () => void;
}

function Inside({ settings, onSettings, onLocked }: InsideProps) {
  const { words } = useSpeech();
  const [id, setId] = useState(chatOfAddress);
  const [search, setSearch] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [isListOpen, setListOpen] = useState(false);
  const [areDetailsOpen, setDetailsOpen] = useState(false);
  const [areSettingsOpen, setSettingsOpen] = useState(false);
  /** The dialog of models, and the model that it shows first. */
  const [modelsOpen, setModelsOpen] = useState<{ first: string | null } | null>(null);
  const [heard, setHeard] = useState("");
  const searchField = useRef<HTMLInputElement>(null);
  const past = useRef(new History());

  const onProblem = useCallback((error: unknown) => {
    if (error instanceof api.Refused && error.refusal.code === "page_locked") onLocked();
    else if (error instanceof api.Refused) setProblem(told(error.refusal, words));
    else if (error instanceof UnfitFile) setProblem(words.attach[error.why](error.file, error.detail));
    else setProblem(words.lost);
  }, [words]);
  const [status, refreshStatus] = useStatus(onProblem, () => setProblem((old) => (old === words.lost ? null : old)));
  const isWithoutModel = status !== null && status.can_choose && status.model === "";
  const isFirstRun = isWithoutModel && id === null;
  const models = useModels(status, { isShown: isFirstRun || modelsOpen !== null, onChange: refreshStatus, onProblem });
  const chooseModel = (first: string | null = null) => {
    setProblem(null);
    setModelsOpen({ first });
  };
  const [chats, refreshChats] = useChats(search, onProblem);
  const open = (id: number | null) => {
    location.hash = id === null ? "" : `#/${id}`;
    setListOpen(false);
  };
  const conversation = useConversation(id, {
    onBegun: open,
    onProblem,
    onChange() {
      refreshChats();
      refreshStatus();
    },
    onSpent: (spent, isLast) => past.current.take(spent, isLast),
  });
  useEffect(() => {
    const changed = () => {
      setId(chatOfAddress());
      setProblem(null);
    };
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  useKeys({
    escape: isListOpen ? () => setListOpen(false) : conversation.live ? conversation.stop : null,
    onNew: () => open(null),
    onSearch() {
      // A wide screen has the list beside the conversation already.
      setListOpen(matchMedia(NARROW).matches);
      setTimeout(() => searchField.current?.focus());
    },
  });

  const enlarge = ({ context, memory_bytes }: Larger) =>
    models.open({ ...models.shelf?.wish, context, memory_bytes }).then(
      () => true,
      (error) => {
        onProblem(error);
        return false;
      },
    );

  const { chat, live } = conversation;
  const last = chat?.messages[chat.messages.length - 1];
  const spent = live ? live.spent : (last?.ending?.spent ?? null);
  // A screen reader hears that an answer began and ended, not each word of it.
  const wasLive = useRef(false);
  useEffect(() => {
    if (live && !wasLive.current) setHeard(words.waiting);
    if (!live && wasLive.current && last?.ending) setHeard(words.reason[last.ending.reason]);
    wasLive.current = live !== null;
  }, [live, last]);
  useEffect(() => {
    document.title = chat ? `${chat.title} – Ouzel` : "Ouzel";
  }, [chat?.title]);

  const change = (change: Partial<Settings>) => {
    onSettings({ ...settings, ...change });
    setProblem(null);
    api.changeSettings(change).then(onSettings, onProblem);
  };
  const samples = past.current.samples;
  const content = isFirstRun ? "first-run" : "composer";
  return (
    <div class={`page ${areDetailsOpen ? "with-details" : ""}`}>
      <a class="skip" href={`#${content}`} onClick={(event) => {
        event.preventDefault();
        document.getElementById(content)?.focus();
      }}>{words.skip}</a>
      <Sidebar
        chats={chats} current={id} search={search} searchField={searchField} isOpen={isListOpen}
        onSearch={setSearch} onNew={() => open(null)} onClose={() => setListOpen(false)} onSettings={() => setSettingsOpen(true)}
      />
      {isListOpen && <div class="shade" onClick={() => setListOpen(false)} />}
      <main>
        <ChatHeader
          chat={chat} title={chat?.title ?? (id === null ? words.newChat : "")} isListOpen={isListOpen}
          onOpenList={() => setListOpen(true)} onProblem={onProblem}
          onRenamed={() => {
            refreshChats();
            conversation.refresh();
          }}
          onRemoved={() => {
            refreshChats();
            open(null);
          }}
        />
        {problem && (
          <div class="banner" role="alert">
            <Icon name="warning" />
            <span>{problem}</span>
            <button type="button" class="quiet" aria-label={words.close} onClick={() => setProblem(null)}><Icon name="close" /></button>
          </div>
        )}
        {!problem && !isWithoutModel && status && !status.is_loaded && !status.is_loading && models.shelf?.problem && (
          <div class="banner" role="alert">
            <Icon name="warning" />
            <span lang="en">{models.shelf.problem}</span>
            <button type="button" class="plain" onClick={() => chooseModel()}>{words.setup.openDialog}</button>
          </div>
        )}
        {isFirstRun ? (
          <FirstRun models={models} isLoading={status.is_loading} loading={status.loading} onChoose={chooseModel} onProblem={onProblem} />
        ) : (
          <Chat id={id} conversation={conversation} settings={settings} status={status} onChoose={isWithoutModel ? chooseModel : null} onLarger={status?.can_choose ? enlarge : null} onNew={() => open(null)} onProblem={onProblem} />
        )}
        <StatusBar
          status={status} live={live} spent={spent} sample={samples[samples.length - 1]}
          installing={models.installing} onModels={() => chooseModel()}
          isOpen={areDetailsOpen} onToggle={() => setDetailsOpen(!areDetailsOpen)}
        />
      </main>
      {areDetailsOpen && status && <Details status={status} spent={spent} samples={samples} isLive={live !== null} onClose={() => setDetailsOpen(false)} />}
      {areSettingsOpen && (
        <SettingsDialog
          settings={settings} status={status} problem={problem} onChange={change} onClose={() => setSettingsOpen(false)}
          onModels={() => {
            setSettingsOpen(false);
            chooseModel();
          }}
          onLoad={(load) => (load ? api.load() : api.unload()).then(refreshStatus, onProblem)}
          onEnd={() => api.end().then(() => setSettingsOpen(false), onProblem)}
        />
      )}
      {modelsOpen && (
        <ModelsDialog
          models={models} status={status} first={modelsOpen.first} problem={problem} onProblem={onProblem}
          onClose={() => setModelsOpen(null)}
          onLoaded={() => {
            setModelsOpen(null);
            setHeard(words.loaded);
          }}
        />
      )}
      <div class="heard" role="status">{heard}</div>
    </div>
  );
}

/** These say that something is wrong, and the server's own words say what. */
const SAY_LITTLE = ["invalid_value", "model_unavailable", "internal_error"];

function told({ code, message }: Refusal, words: Speech["words"]): string {
  const known = words.problem[code];
  if (!known) return message;
  return SAY_LITTLE.includes(code) ? `${known} ${message}` : known;
}

/** What the engine says of itself, asked again and again while the page is seen. */
function useStatus(onProblem: (error: unknown) => void, onAnswer: () => void): [Status | null, () => void] {
  const [status, setStatus] = useState<Status | null>(null);
  const refresh = () =>
    void api.status().then((status) => {
      setStatus(status);
      onAnswer();
    }, onProblem);
  const everyMs = status?.is_loading ? LOADING_EVERY_MS : STATUS_EVERY_MS;
  useEffect(refresh, []);
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.visibilityState === "visible") refresh();
    }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return [status, refresh];
}

/** The list, or what a search finds, a moment after the last letter was typed. */
function useChats(search: string, onProblem: (error: unknown) => void): [ChatLine[] | null, () => void] {
  const [chats, setChats] = useState<ChatLine[] | null>(null);
  const wanted = useRef(search);
  wanted.current = search;
  const refresh = () => {
    const words = wanted.current.trim();
    api.chats(words).then((found) => {
      if (wanted.current.trim() === words) setChats(found);
    }, onProblem);
  };
  useEffect(() => {
    const timer = setTimeout(refresh, search ? SEARCH_PAUSE_MS : 0);
    return () => clearTimeout(timer);
  }, [search]);
  return [chats, refresh];
}

interface Keys {
  /** Closes the list that lies over the conversation, else stops the answer, if one is being made. */
  escape: (() => void) | null;
  onNew: () => void;
  onSearch: () => void;
}

function useKeys(keys: Keys) {
  const current = useRef(keys);
  current.current = keys;
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const { escape, onNew, onSearch } = current.current;
      const isInField = (event.target as HTMLElement).matches("input, textarea, select");
      if (document.querySelector("dialog[open]")) return;
      if (event.isComposing) return;
      // On some keyboards AltGr or Option with N writes a letter.
      const writes = event.ctrlKey || event.getModifierState("AltGraph") || event.key === "Dead";
      if (event.key === "Escape" && escape) escape();
      else if (event.altKey && !writes && event.code === "KeyN") onNew();
      else if ((event.ctrlKey || event.metaKey) && event.key === "k") onSearch();
      else if (event.key === "/" && !isInField) document.getElementById("composer")?.focus();
      else return;
      event.preventDefault();
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, []);
}
