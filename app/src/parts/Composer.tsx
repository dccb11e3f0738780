// Where a person writes. It grows with the text, sends with the key that the settings name, and is a stop button while the model answers.

import { useEffect, useRef, useState } from "preact/hooks";
import { useSpeech } from "../words";
import { Icon } from "./Icon";

interface Props {
  /** Another conversation has another draft. */
  chat: number | null;
  isAnswering: boolean;
  enterIsNewline: boolean;
  onSend: (text: string) => Promise<boolean>;
  onStop: () => void;
  /** Chooses a model, where none is chosen and nothing can be asked. */
  onChoose: (() => void) | null;
}

/** Drafts outlive a look into another conversation, and nothing else. */
const drafts = new Map<number | null, string>();

/** What stands in the field when the conversation is looked at next. */
export const keepDraft = (chat: number | null, text: string) => drafts.set(chat, text);

export function Composer({ chat, isAnswering, enterIsNewline, onSend, onStop, onChoose }: Props) {
  const { words } = useSpeech();
  const field = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useState(drafts.get(chat) ?? "");
  const shown = useRef(chat);
  shown.current = chat;
  const write = (text: string) => {
    drafts.set(chat, text);
    setText(text);
  };
  useEffect(() => {
    setText(drafts.get(chat) ?? "");
    // On a touch screen this would bring up the keyboard unasked.
    if (matchMedia("(hover: hover)").matches) field.current?.focus();
  }, [chat]);
  useEffect(() => {
    const area = field.current;
    if (!area) return;
    const fit = () => {
      area.style.height = "auto";
      area.style.height = `${area.scrollHeight}px`;
    };
    fit();
    // As many words are other lines in another width.
    addEventListener("resize", fit);
    return () => removeEventListener("resize", fit);
  }, [text]);
  const send = async () => {
    if (isAnswering || !text.trim()) return;
    const sent = text;
    write("");
    if (await onSend(sent)) return;
    drafts.set(chat, sent);
    if (shown.current === chat) setText(sent);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.isComposing) return;
    const isCommand = event.ctrlKey || event.metaKey;
    if (isCommand || (!enterIsNewline && !event.shiftKey)) {
      event.preventDefault();
      void send();
    }
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <div class="composer-box">
        <textarea
          ref={field}
          id="composer"
          rows={1}
          value={text}
          placeholder={onChoose ? words.setup.noneChosen : words.composer}
          disabled={onChoose !== null}
          aria-label={words.message}
          onInput={(event) => write(event.currentTarget.value)}
          onKeyDown={onKeyDown}
        />
        {onChoose ? (
          <button type="button" class="plain" onClick={onChoose}>{words.setup.chooseOne}</button>
        ) : isAnswering ? (
          <button type="button" class="round" aria-label={words.stopHint} title={words.stopHint} onClick={onStop}>
            <Icon name="stop" />
          </button>
        ) : (
          <button type="submit" class="round" aria-label={words.send} title={words.send} disabled={!text.trim()}>
            <Icon name="send" />
          </button>
        )}
      </div>
      <p class="note">{words.canBeWrong}</p>
    </form>
  );
}
