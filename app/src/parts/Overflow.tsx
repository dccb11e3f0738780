// What can be done where a conversation is longer than the context.

import { useState } from "preact/hooks";
import type { Ending, Larger } from "../wire";
import { useSpeech } from "../words";

interface Props {
  /** None, where there is no larger context or no other can be chosen here. */
  larger: Larger | null;
  /** Whether there are turns before the last one. */
  canLeaveOut: boolean;
  onLarger: (larger: Larger) => Promise<void>;
  onLeaveOut: () => void;
  onNew: () => void;
}

/** Whether an answer failed, or was cut off, for want of room. */
export const isOverflow = (ending: Ending) => ending.reason === "context_full" || ending.code === "context_length_exceeded";

export function Overflow({ larger, canLeaveOut, onLarger, onLeaveOut, onNew }: Props) {
  const { words, number, bytes } = useSpeech();
  const { overflow } = words;
  const [isLoading, setLoading] = useState(false);
  if (!larger && !canLeaveOut) return null;
  const load = async () => {
    if (!larger) return;
    setLoading(true);
    await onLarger(larger);
    setLoading(false);
  };
  return (
    <div class="overflow" role="group" aria-label={overflow.title}>
      {larger && (
        <button type="button" class="plain" disabled={isLoading} onClick={() => void load()}>
          {isLoading ? words.loading : overflow.larger(number(larger.context), bytes(larger.memory_bytes))}
        </button>
      )}
      {canLeaveOut && <button type="button" class="plain" disabled={isLoading} onClick={onLeaveOut}>{overflow.leaveOut}</button>}
      {canLeaveOut && <button type="button" class="plain" disabled={isLoading} onClick={onNew}>{overflow.newChat}</button>}
    </div>
  );
}
