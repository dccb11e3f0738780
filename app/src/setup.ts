// What the server and the page say to each other about models: the twin of crates/server/src/wire/setup.rs.

import type { PlanLine } from "./wire";

export type Io = "auto" | "direct" | "buffered";

/** How a model shall be opened; what is left out is as the program was started. */
export interface Wish {
  model?: string | null;
  memory_bytes?: number | null;
  context?: number | null;
  slots?: number | null;
  io?: Io | null;
}

/** What a wish would take. */
export interface Planned {
  model: string;
  total_bytes: number;
  /** The least with which the same context would run. */
  smallest_bytes: number;
  context: number;
  max_context: number;
  slots: number;
  layers: number;
  experts: number;
  plan: PlanLine[];
  reads: "direct" | "dropping" | "buffered";
  /** With what the model that is loaded now would give back. */
  free_bytes: number | null;
  fits: boolean | null;
  /** None until the machine was measured. */
  expected: { decode_tokens_per_s: number; prefill_tokens_per_s: number } | null;
}

export type ModelState = "complete" | "unfinished" | "installing" | "gone" | "broken";

export interface Listed {
  name: string;
  bytes: number;
  state: ModelState;
  /** Why it cannot be used, in English. */
  why: string | null;
  is_default: boolean;
  is_demo: boolean;
}

export interface Shelf {
  models: Listed[];
  chosen: string | null;
  wish: Wish;
  /** Why what was wanted at the start could not be had. */
  problem: string | null;
  can_install: boolean;
}

/** What is known of the model that would be fetched, as far as nobody has to be asked. */
export interface Found {
  repository: string;
  revision: string;
  host: string;
  model: string;
  folder: string;
  free_bytes: number | null;
  is_installed: boolean;
  /** What an installation that was cut short has left. */
  partial_bytes: number | null;
}

/** What a hub says of it. */
export interface Offer {
  commit: string;
  is_pinned: boolean;
  licence: string | null;
  page: string;
  transfer_bytes: number;
  come_bytes: number;
  disk_bytes: number;
  needed_bytes: number;
  /** Of an unfinished installation of another checkpoint, which goes first. */
  removes_bytes: number;
}

export type Work = { what: "download" } | { what: "verify" | "repair"; model: string };
export type WorkPhase = "checking" | "fetching" | "verifying";
export type Stage = "idle" | "running" | "pausing" | "paused" | "failed" | "damaged" | "done";

export interface Installing {
  found: Found;
  is_asking: boolean;
  offer: Offer | null;
  offer_problem: string | null;
  work: Work | null;
  stage: Stage;
  phase: WorkPhase | null;
  done_bytes: number;
  total_bytes: number;
  bytes_per_s: number | null;
  seconds_left: number | null;
  retry: string | null;
  problem: string | null;
  damage: string[];
  model: string | null;
}
