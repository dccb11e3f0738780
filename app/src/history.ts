// What the engine did over the last minutes, as the details panel draws it. Samples come with the answers; nothing is asked for.

import type { Spent } from "./wire";

/** Samples are kept for this long. */
const KEEP_MS = 5 * 60 * 1000;
/** A sample sums up this much time. */
const STEP_MS = 400;

export interface Sample {
  at: number;
  tokensPerS: number;
  /** None where no expert was asked for. */
  hitRate: number | null;
  bytesAToken: number;
}

export class History {
  samples: Sample[] = [];
  private before: { at: number; spent: Spent } | null = null;

  /** Takes what an answer took until now. Only steps between new tokens count: a prompt is another kind of work. */
  take(spent: Spent, isLast = false, at = Date.now()) {
    const { before } = this;
    const isNext = before !== null && spent.new_tokens >= before.spent.new_tokens && spent.decode_ms >= before.spent.decode_ms;
    if (!isNext || before.spent.new_tokens === 0) {
      this.before = { at, spent };
      return;
    }
    const [tokens, ms] = [spent.new_tokens - before.spent.new_tokens, spent.decode_ms - before.spent.decode_ms];
    if (tokens === 0 || (at - before.at < STEP_MS && !isLast)) return;
    const [hits, misses] = [spent.hits - before.spent.hits, spent.misses - before.spent.misses];
    this.samples = [
      ...this.samples.filter((sample) => sample.at > at - KEEP_MS),
      {
        at,
        tokensPerS: ms > 0 ? (1000 * tokens) / ms : 0,
        hitRate: hits + misses > 0 ? hits / (hits + misses) : null,
        bytesAToken: (spent.bytes_read - before.spent.bytes_read) / tokens,
      },
    ];
    this.before = { at, spent };
  }
}

/** The same for a whole answer, whose prompt cannot be told apart. */
export function summary(spent: Spent): { tokensPerS: number | null; hitRate: number | null } {
  const asked = spent.hits + spent.misses;
  return {
    tokensPerS: spent.decode_ms > 0 && spent.new_tokens > 0 ? (1000 * spent.new_tokens) / spent.decode_ms : null,
    hitRate: asked > 0 ? spent.hits / asked : null,
  };
}
