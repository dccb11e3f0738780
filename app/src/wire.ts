// What the server and the page say to each other: the twin of crates/server/src/wire/page.rs.

import type { Wish } from "./setup";

export interface Entrance {
  is_inside: boolean;
  takes_key: boolean;
}

export interface ChatLine {
  id: number;
  title: string;
  created_ms: number;
  updated_ms: number;
  is_answering: boolean;
  excerpt: string | null;
}

export interface WholeChat extends ChatLine {
  messages: Message[];
}

export interface Message {
  id: number;
  role: "user" | "assistant";
  text: string;
  thinking: string;
  created_ms: number;
  /** None while the answer is written. */
  ending: Ending | null;
}

export type Reason = "done" | "length" | "context_full" | "stopped" | "interrupted" | "failed";

export interface Ending {
  reason: Reason;
  message?: string;
  code?: string;
  spent?: Spent;
  /** The oldest messages, so many of them, that the model was not given. */
  left_out?: number;
  /** A context in which the turn would have fitted, where it did not. */
  larger?: Larger;
}

export interface Larger {
  context: number;
  memory_bytes: number;
}

export interface Spent {
  prompt_tokens: number;
  cached_tokens: number;
  new_tokens: number;
  prefill_ms: number;
  decode_ms: number;
  hits: number;
  misses: number;
  bytes_read: number;
}

export type Phase = "waiting" | "reading" | "thinking" | "writing";

/** What came of an answer since the last one of these. */
export interface Said {
  /** Whether this is all there is until now, instead of what follows. */
  begins: boolean;
  text: string;
  thinking: string;
  phase: Phase;
  prompt: [done: number, total: number] | null;
  spent: Spent | null;
  unsaved: string | null;
}

export interface Ask {
  chat?: number;
  replaces?: number;
  text?: string;
  /** Where the conversation does not fit, the model does without its oldest turns. */
  leaves_out?: boolean;
}

export interface Asked {
  chat: number;
  answer: number;
}

/** How far a model is on its way into memory. */
export interface Loading {
  done_bytes: number;
  total_bytes: number;
}

export interface Status {
  version: string;
  /** Empty where none is chosen. */
  model: string;
  /** Whether the page may choose another one. */
  can_choose: boolean;
  is_loaded: boolean;
  is_loading: boolean;
  loading: Loading | null;
  is_answering: boolean;
  waiting: number;
  context: number;
  budget_bytes: number;
  pid: number | null;
  resident_bytes: number | null;
  slots: number;
  layers: number;
  experts: number;
  plan: PlanLine[];
  defaults: { temperature: number; top_p: number; top_k: number };
}

export interface PlanLine {
  what: string;
  bytes: number;
}

/** The experts of all layers at one moment. */
export interface Experts {
  experts: number;
  /** `marks` has a digit for each expert: 1 in memory, 2 found there lately, 4 read lately, added up. */
  layers: { hits: number; misses: number; marks: string }[];
}

export type Theme = "light" | "dark";
export type Language = "en" | "de";

export interface Settings {
  system: string;
  thinking: boolean;
  temperature: number | null;
  top_p: number | null;
  top_k: number | null;
  max_new: number | null;
  theme: Theme | null;
  language: Language | null;
  enter_is_newline: boolean;
  /** The model and how it was opened, when it was chosen here last. */
  engine: Wish;
}

export interface Refusal {
  message: string;
  code: string;
  param: string | null;
}
