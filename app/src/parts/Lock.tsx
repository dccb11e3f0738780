// What is seen by whoever has not come in by the token.

import { useState } from "preact/hooks";
import * as api from "../api";
import { useSpeech } from "../words";
import { Icon } from "./Icon";

export function Lock({ takesKey, onOpen }: { takesKey: boolean; onOpen: () => void }) {
  const { words } = useSpeech();
  const [problem, setProblem] = useState<string | null>(null);
  const open = (event: SubmitEvent) => {
    event.preventDefault();
    const key = new FormData(event.currentTarget as HTMLFormElement).get("key");
    api.enter({ key: String(key) }).then(onOpen, (error) => {
      setProblem(error instanceof api.Refused ? words.wrongKey : words.lost);
    });
  };
  return (
    <main class="lock">
      <span class="big-icon"><Icon name="lock" /></span>
      <h1>{words.locked}</h1>
      <p>{words.lockedMore}</p>
      {takesKey && (
        <form onSubmit={open}>
          <label class="field">
            <span>{words.lockedKey}</span>
            <input type="password" name="key" autoComplete="current-password" aria-label={words.key} aria-invalid={problem !== null} required />
          </label>
          {problem && <p class="problem" role="alert">{problem}</p>}
          <button type="submit" class="primary">{words.unlock}</button>
        </form>
      )}
    </main>
  );
}
