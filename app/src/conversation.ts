// One conversation as the page has it: its messages, the answer that is being made, and what can be done. The server owns all of it; what is
// here is what was last heard.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import * as api from "./api";
import type { Live } from "./parts/Message";
import type { Ask, Said, Spent, WholeChat } from "./wire";

export interface Conversation {
  chat: WholeChat | null;
  /** The answer that is being made, if one is. */
  live: Live | null;
  isMissing: boolean;
  ask(question: Omit<Ask, "chat">): Promise<boolean>;
  stop(): void;
  /** Asks the server again, after something was changed elsewhere. */
  refresh(): void;
}

interface Hooks {
  /** A question began a conversation. */
  onBegun(chat: number): void;
  /** The list is out of date. */
  onChange(): void;
  onProblem(error: unknown): void;
  onSpent(spent: Spent, isLast: boolean): void;
}

const NOTHING: Live = { text: "", thinking: "", phase: "waiting", prompt: null, spent: null, unsaved: null };

export function useConversation(id: number | null, hooks: Hooks): Conversation {
  const [chat, setChat] = useState<WholeChat | null>(null);
  const [live, setLive] = useState<Live | null>(null);
  const [isMissing, setMissing] = useState(false);
  const current = useRef(hooks);
  current.current = hooks;
  const shown = useRef(id);
  shown.current = id;

  const fetch = useCallback(async (id: number, isWanted: () => boolean) => {
    try {
      const chat = await api.chat(id);
      if (isWanted()) setChat(chat);
    } catch (error) {
      if (!isWanted()) return;
      if (error instanceof api.Refused && error.status === 404) setMissing(true);
      else current.current.onProblem(error);
    }
  }, []);

  useEffect(() => {
    let isWanted = true;
    setChat(null);
    setMissing(false);
    if (id !== null) void fetch(id, () => isWanted);
    return () => {
      isWanted = false;
    };
  }, [id]);

  const last = chat?.messages[chat.messages.length - 1];
  const pending = last && last.role === "assistant" && last.ending === null ? last.id : null;
  useEffect(() => {
    if (pending === null) {
      setLive(null);
      return;
    }
    let now = NOTHING;
    setLive(now);
    const ended = () => {
      setLive(null);
      current.current.onChange();
    };
    return api.watch(pending, {
      said(said) {
        now = added(now, said);
        setLive(now);
        if (now.spent) current.current.onSpent(now.spent, false);
      },
      ended(message) {
        if (message.ending?.spent) current.current.onSpent(message.ending.spent, true);
        setChat((chat) => chat && { ...chat, messages: chat.messages.map((old) => (old.id === message.id ? message : old)) });
        ended();
      },
      gone() {
        setMissing(true);
        ended();
      },
      lost() {
        current.current.onProblem(new api.Unreachable("the answer's events broke off"));
      },
    });
  }, [pending]);

  const ask = async (question: Omit<Ask, "chat">) => {
    try {
      const asked = await api.ask(id === null ? question : { ...question, chat: id });
      // Whoever looks at another conversation by now stays there.
      const isShown = () => shown.current === id;
      if (id !== null) await fetch(id, isShown);
      else if (isShown()) current.current.onBegun(asked.chat);
      current.current.onChange();
      return true;
    } catch (error) {
      current.current.onProblem(error);
      return false;
    }
  };
  const stop = () => {
    if (pending !== null) api.stop(pending).catch((error) => current.current.onProblem(error));
  };
  const refresh = () => {
    if (id !== null) void fetch(id, () => shown.current === id);
  };
  // For a moment there is still the one that was looked at before.
  const isShown = chat !== null && chat.id === id;
  return { chat: isShown ? chat : null, live: isShown ? live : null, isMissing, ask, stop, refresh };
}

function added(live: Live, said: Said): Live {
  const before = said.begins ? NOTHING : live;
  return {
    text: before.text + said.text,
    thinking: before.thinking + said.thinking,
    phase: said.phase,
    prompt: said.prompt,
    spent: said.spent,
    unsaved: said.unsaved,
  };
}
