// Where a person writes. It grows with the text, sends with the key that the settings name, and is a stop button while the model answers.

import { useEffect, useRef, useState } from "preact/hooks";
import { type Attachment, MAX_FILES, read, UnfitFile, withFiles } from "../attachments";
import * as api from "../api";
import { useSpeech } from "../words";
import { Attached } from "./Attached";
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
  onProblem: (error: unknown) => void;
}

/** Drafts outlive a look into another conversation, and nothing else. */
const drafts = new Map<number | null, string>();

/** What stands in the field when the conversation is looked at next. */
export const keepDraft = (chat: number | null, text: string) => drafts.set(chat, text);

/** So do the files of a draft. */
const attachments = new Map<number | null, Attachment[]>();
let nextId = 1;

export function Composer({ chat, isAnswering, enterIsNewline, onSend, onStop, onChoose, onProblem }: Props) {
  const { words } = useSpeech();
  const field = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useState(drafts.get(chat) ?? "");
  const [files, attach, detach] = useAttachments(chat, onProblem);
  const picker = useRef<HTMLInputElement>(null);
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
  const isEmpty = (!text.trim() && files.length === 0) || files.some((file) => file.isReading);
  const send = async () => {
    if (isAnswering || isEmpty) return;
    const [sent, sentFiles] = [text, files];
    write("");
    detach(sentFiles);
    if (await onSend(withFiles(sent, sentFiles))) return;
    drafts.set(chat, sent);
    attachments.set(chat, sentFiles);
    if (shown.current === chat) {
      setText(sent);
      attach([]);
    }
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
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault();
        if (!onChoose) attach(Array.from(event.dataTransfer?.files ?? []));
      }}
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <Attached files={files} onRemove={(id) => detach(files.filter((file) => file.id === id))} />
      <div class="composer-box">
        {!onChoose && (
          <button type="button" class="quiet" aria-label={words.attach.add} title={words.attach.add} onClick={() => picker.current?.click()}>
            <Icon name="attach" />
          </button>
        )}
        <input ref={picker} type="file" multiple hidden aria-hidden="true" tabIndex={-1}
          onChange={(event) => {
            attach(Array.from(event.currentTarget.files ?? []));
            event.currentTarget.value = "";
          }}
        />
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
          <button type="submit" class="round" aria-label={words.send} title={words.send} disabled={isEmpty}>
            <Icon name="send" />
          </button>
        )}
      </div>
      <p class="note">{words.canBeWrong}</p>
    </form>
  );
}

/** The files of a conversation's draft, and their tokens as soon as they are counted. */
function useAttachments(chat: number | null, onProblem: (error: unknown) => void): [Attachment[], (chosen: File[]) => void, (gone: Attachment[]) => void] {
  const [, redraw] = useState(0);
  const change = (to: (files: Attachment[]) => Attachment[]) => {
    attachments.set(chat, to(attachments.get(chat) ?? []));
    redraw((n) => n + 1);
  };
  const attach = async (file: File) => {
    const id = nextId++;
    const alter = (to: Partial<Attachment>) => change((files) => files.map((old) => (old.id === id ? { ...old, ...to } : old)));
    change((files) => [...files, { id, name: file.name, text: "", tokens: null, isReading: true }]);
    try {
      const found = await read(file);
      alter({ ...found, isReading: false });
      alter(await api.countTokens(found.text));
    } catch (error) {
      change((files) => files.filter((old) => old.id !== id || !old.isReading));
      onProblem(error);
    }
  };
  const all = async (chosen: File[]) => {
    const room = Math.max(0, MAX_FILES - (attachments.get(chat) ?? []).length);
    // One after the other, so that they stay in the order in which they were chosen.
    for (const file of chosen.slice(0, room)) await attach(file);
    const rest = chosen.slice(room).map((file) => file.name);
    if (rest.length > 0) onProblem(new UnfitFile("tooMany", rest.join(", ")));
    redraw((n) => n + 1);
  };
  const detach = (gone: Attachment[]) => change((files) => files.filter((file) => !gone.includes(file)));
  return [attachments.get(chat) ?? [], (chosen) => void all(chosen), detach];
}
