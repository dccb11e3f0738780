// The server's addresses as functions. What goes wrong is one of two errors: the server says why, or it is not there.

import type { Installing, Planned, Shelf, Wish, Work } from "./setup";
import type { Ask, Asked, ChatLine, Entrance, Experts, Message, Refusal, Said, Settings, Status, WholeChat } from "./wire";

export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly refusal: Refusal,
  ) {
    super(refusal.message);
  }
}

/** Nobody answers: the program was ended, or the network is gone. */
export class Unreachable extends Error {}

async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers: body === undefined || body instanceof Blob ? {} : { "content-type": "application/json" },
      body: body === undefined ? null : body instanceof Blob ? body : JSON.stringify(body),
    });
  } catch (error) {
    throw new Unreachable(String(error));
  }
  if (response.status === 204) return undefined as T;
  const value = await response.json().catch(() => null);
  if (!response.ok) {
    const unknown: Refusal = { message: `HTTP ${response.status}`, code: "unknown", param: null };
    throw new Refused(response.status, value?.error ?? unknown);
  }
  return value as T;
}

export const entrance = () => call<Entrance>("GET", "/app/session");
export const enter = (by: { token: string } | { key: string }) => call<void>("POST", "/app/session", by);
export const status = () => call<Status>("GET", "/app/status");
export const experts = () => call<Experts | null>("GET", "/app/experts");
export const settings = () => call<Settings>("GET", "/app/settings");
/** What is named is changed, and the rest stays as another tab may have set it. */
export const changeSettings = (change: Partial<Settings>) => call<Settings>("PATCH", "/app/settings", change);
export const chats = (words: string) =>
  words ? call<ChatLine[]>("POST", "/app/search", { words }) : call<ChatLine[]>("GET", "/app/chats");
export const chat = (id: number) => call<WholeChat>("GET", `/app/chats/${id}`);
export const rename = (id: number, title: string) => call<void>("PATCH", `/app/chats/${id}`, { title });
export const remove = (id: number) => call<void>("DELETE", `/app/chats/${id}`);
export const ask = (question: Ask) => call<Asked>("POST", "/app/turns", question);
export const countTokens = (text: string) => call<{ tokens: number }>("POST", "/app/tokens", { text });
export const textOfPdf = (file: Blob) => call<{ text: string }>("POST", "/app/pdf", file);
export const stop = (answer: number) => call<void>("POST", `/app/answers/${answer}/stop`);
export const load = () => call<void>("POST", "/app/load");
export const unload = () => call<void>("POST", "/app/unload");
export const models = () => call<Shelf>("GET", "/app/models");
/** Answers when the model is loaded. */
export const open = (wish: Wish) => call<void>("POST", "/app/models/open", wish);
export const makeDefault = (model: string) => call<void>("POST", "/app/models/default", { model });
export const plan = (wish: Wish) => call<Planned>("POST", "/app/plan", wish);
export const measure = (wish: Wish) => call<void>("POST", "/app/measure", wish);
export const installing = () => call<Installing>("GET", "/app/install");
export const askHub = () => call<void>("POST", "/app/install/ask");
export const startWork = (work: Work) => call<void>("POST", "/app/install/start", work);
export const pauseWork = () => call<void>("POST", "/app/install/pause");
export const discardWork = () => call<void>("POST", "/app/install/discard");
export const end = () => call<void>("POST", "/app/end");

export interface Watcher {
  said(said: Said): void;
  ended(message: Message): void;
  /** The conversation was removed meanwhile. */
  gone(): void;
  /** The connection broke; it is tried again, and then everything comes anew. */
  lost(): void;
}

/** Watches an answer until its end; the result ends the watching. */
export function watch(answer: number, watcher: Watcher): () => void {
  const source = new EventSource(`/app/answers/${answer}`);
  const on = <T>(name: string, take: (value: T) => void) =>
    source.addEventListener(name, (event) => take(JSON.parse((event as MessageEvent<string>).data)));
  on<Said>("said", (said) => watcher.said(said));
  on<Message>("end", (message) => {
    source.close();
    watcher.ended(message);
  });
  on<null>("gone", () => {
    source.close();
    watcher.gone();
  });
  source.addEventListener("error", () => watcher.lost());
  return () => source.close();
}
