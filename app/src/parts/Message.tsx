// One message: what a person said, which can be edited, or what the model answered, thought, and why it stopped.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { apart, withFiles } from "../attachments";
import type { Ending, Message as Said, Phase, Spent } from "../wire";
import { type Speech, useSpeech } from "../words";
import { Files } from "./Attached";
import { CopyButton } from "./CopyButton";
import { Icon } from "./Icon";
import { Markdown } from "./Markdown";
import { isOverflow } from "./Overflow";

export interface Live {
  text: string;
  thinking: string;
  phase: Phase;
  prompt: [number, number] | null;
  spent: Spent | null;
  unsaved: string | null;
}

interface UserProps {
  message: Said;
  canEdit: boolean;
  /** Whether it was taken. */
  onEdit: (text: string) => Promise<boolean>;
}

export function UserMessage({ message, canEdit, onEdit }: UserProps) {
  const { words } = useSpeech();
  const [isEditing, setEditing] = useState(false);
  const said = useMemo(() => apart(message.text), [message.text]);
  if (isEditing) {
    // What was refused stays in the editor.
    const send = async (text: string) => {
      if (await onEdit(text)) setEditing(false);
    };
    return <Editor text={said.text} onSend={(text) => send(withFiles(text, said.files))} onCancel={() => setEditing(false)} />;
  }
  return (
    <article class="message user" aria-label={words.you}>
      {said.text && <div class="bubble">{said.text}</div>}
      <Files files={said.files} />
      <div class="actions">
        <CopyButton text={message.text} label={words.copy} />
        {canEdit && (
          <button type="button" class="quiet" aria-label={words.edit} title={words.edit} onClick={() => setEditing(true)}>
            <Icon name="edit" />
          </button>
        )}
      </div>
    </article>
  );
}

function Editor({ text, onSend, onCancel }: { text: string; onSend: (text: string) => Promise<void>; onCancel: () => void }) {
  const { words } = useSpeech();
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => {
    field.current?.focus();
    field.current?.setSelectionRange(text.length, text.length);
  }, []);
  const send = () => {
    const changed = field.current?.value.trim();
    if (changed) void onSend(changed);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.isComposing) return;
    if (event.key === "Escape") {
      event.stopPropagation();
      onCancel();
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      send();
    }
  };
  return (
    <div class="message user editor">
      <textarea ref={field} defaultValue={text} aria-label={words.editing} rows={Math.min(12, text.split("\n").length + 1)} onKeyDown={onKeyDown} />
      <div class="editor-foot">
        <span class="soft small">{words.editNote}</span>
        <span class="row">
          <button type="button" class="plain" onClick={onCancel}>{words.cancel}</button>
          <button type="button" class="primary" onClick={send}>{words.send}</button>
        </span>
      </div>
    </div>
  );
}

interface AnswerProps {
  message: Said;
  live: Live | null;
  canAnswerAgain: boolean;
  onAgain: () => void;
  /** What can be done about its ending. */
  children?: ComponentChildren;
}

export function Answer({ message, live, canAnswerAgain, onAgain, children }: AnswerProps) {
  const speech = useSpeech();
  const { words } = speech;
  const text = live?.text ?? message.text;
  const thinking = live?.thinking ?? message.thinking;
  const { ending } = message;
  // What failed before a conversation was opened is no news.
  const wasLive = useRef(false);
  wasLive.current ||= live !== null;
  return (
    <article class="message answer" aria-label={words.model} aria-busy={live !== null}>
      {thinking && <Thoughts text={thinking} isThinking={live?.phase === "thinking"} />}
      {text && <Markdown text={text} />}
      {live && <Progress live={live} />}
      {live?.unsaved && (
        <p class="problem" role="alert">
          <Icon name="warning" />
          <span>{words.unsaved} {live.unsaved}</span>
        </p>
      )}
      {ending && (
        <>
          <End ending={ending} speech={speech} isNew={wasLive.current} />
          {children}
          <div class="actions">
            {text && <CopyButton text={text} label={words.copyAnswer} />}
            {canAnswerAgain && (
              <button type="button" class="quiet" aria-label={words.again} title={words.again} onClick={onAgain}>
                <Icon name="again" />
              </button>
            )}
          </div>
        </>
      )}
    </article>
  );
}

function Thoughts({ text, isThinking }: { text: string; isThinking: boolean }) {
  const { words } = useSpeech();
  return (
    <details class="thoughts">
      <summary>{isThinking ? `${words.thinking} …` : words.thoughts}</summary>
      <Markdown text={text} />
    </details>
  );
}

/** What is happening, until there is something to read. */
function Progress({ live }: { live: Live }) {
  const { words, number } = useSpeech();
  if (live.phase === "writing") return <span class="caret" aria-hidden="true" />;
  const [done, total] = live.prompt ?? [0, 0];
  const isReading = live.phase === "reading" && total > 0;
  return (
    <p class="progress">
      <span class="dots" aria-hidden="true"><i /><i /><i /></span>
      <span>{isReading ? words.reading(number(done), number(total)) : words[live.phase]}</span>
      {isReading && <progress value={done} max={total} aria-label={words.reading(number(done), number(total))} />}
    </p>
  );
}

/** Why an answer stopped, in words, and what it took. */
function End({ ending, speech, isNew }: { ending: Ending; speech: Speech; isNew: boolean }) {
  const { words, number } = speech;
  if (ending.reason === "failed") {
    const known = ending.code ? words.problem[ending.code] : undefined;
    return (
      <div class="problem" role={isNew ? "alert" : undefined}>
        <Icon name="warning" />
        <div>
          <strong>{words.reason.failed}</strong>
          <p>{known ?? ending.message}</p>
          {known && ending.message && !isOverflow(ending) && <p class="small soft">{ending.message}</p>}
        </div>
      </div>
    );
  }
  const { spent } = ending;
  const facts = [words.reason[ending.reason]];
  if (spent && spent.new_tokens > 0) {
    facts.push(words.tokens(number(spent.new_tokens)));
    if (spent.decode_ms > 0) facts.push(words.tokensPerS(number((1000 * spent.new_tokens) / spent.decode_ms, 1)));
  }
  return (
    <>
      <p class={`end ${ending.reason}`}>{facts.join(" · ")}</p>
      {ending.left_out ? <p class="end">{words.overflow.leftOut(ending.left_out)}</p> : null}
    </>
  );
}
