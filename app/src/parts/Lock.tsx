// What is seen by whoever has not come in by the token.

import { useState } from "preact/hooks";
import * as api from "../api";
import { useSpeech } from "../words";
import { Icon } from "./Icon";

export function Lock({ takesKey, onOpen }: { takesKey: boolean; onOpen: () => void }) {
  const { words } = useSpeech();
  const [isWrong, setWrong] = useState(false);
  const open = (event: SubmitEvent) => {
    event.preventDefault();
    const key = new FormData(event.currentTarget as HTMLFormElement).get("key");
    api.enter({ key: String(key) }).then(onOpen, () => setWrong(true));
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
            <input type="password" name="key" autoComplete="current-password" aria-label={words.key} aria-invalid={isWrong} required />
          </label>
          {isWrong && <p class="problem" role="alert">{words.wrongKey}</p>}
          <button type="submit" class="primary">{words.unlock}</button>
        </form>
      )}
    </main>
  );
}
