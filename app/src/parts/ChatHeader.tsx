// The title of a conversation, and what can be done with the whole of it.

import { useState } from "preact/hooks";
import * as api from "../api";
import { fileName, markdown, save } from "../export";
import type { WholeChat } from "../wire";
import { useSpeech } from "../words";
import { Dialog } from "./Dialog";
import { Icon } from "./Icon";

interface Props {
  chat: WholeChat | null;
  title: string;
  isListOpen: boolean;
  onOpenList: () => void;
  onRenamed: () => void;
  onRemoved: () => void;
  onProblem: (error: unknown) => void;
}

/** As many letters as the server keeps. */
const MAX_TITLE = 60;

type Open = "rename" | "remove" | "export" | null;

export function ChatHeader({ chat, title, isListOpen, onOpenList, onRenamed, onRemoved, onProblem }: Props) {
  const speech = useSpeech();
  const { words } = speech;
  const [open, setOpen] = useState<Open>(null);
  const close = () => setOpen(null);
  const act = (action: Promise<void>, done: () => void) => {
    close();
    action.then(done, onProblem);
  };
  const rename = (event: SubmitEvent) => {
    event.preventDefault();
    const wanted = String(new FormData(event.currentTarget as HTMLFormElement).get("title")).trim();
    if (chat && wanted) act(api.rename(chat.id, wanted), onRenamed);
  };
  const exportAs = (kind: "markdown" | "json") => {
    close();
    if (!chat) return;
    if (kind === "markdown") save(fileName(chat.title, "md"), "text/markdown", markdown(chat, speech));
    else save(fileName(chat.title, "json"), "application/json", JSON.stringify(chat, null, 2));
  };
  return (
    <header class="chat-header">
      <button type="button" class="quiet only-narrow" aria-label={words.openList} aria-expanded={isListOpen} onClick={onOpenList}>
        <Icon name="menu" />
      </button>
      <p class="chat-title">{title}</p>
      {chat && (
        <div class="row">
          <Tool icon="edit" name={words.rename} onClick={() => setOpen("rename")} />
          <Tool icon="download" name={words.export} onClick={() => setOpen("export")} />
          <Tool icon="trash" name={words.remove} onClick={() => setOpen("remove")} />
        </div>
      )}
      {open === "rename" && (
        <Dialog title={words.rename} onClose={close}>
          <form onSubmit={rename}>
            <label class="field">
              <span>{words.title}</span>
              <input name="title" defaultValue={chat?.title} maxLength={MAX_TITLE} required autoFocus />
              <span class="soft small">{words.titleLimit(MAX_TITLE)}</span>
            </label>
            <div class="choices">
              <button type="button" class="plain" onClick={close}>{words.cancel}</button>
              <button type="submit" class="primary">{words.save}</button>
            </div>
          </form>
        </Dialog>
      )}
      {open === "export" && (
        <Dialog title={words.export} onClose={close}>
          <div class="choices">
            <button type="button" class="plain" onClick={() => exportAs("markdown")}>{words.exportMarkdown}</button>
            <button type="button" class="plain" onClick={() => exportAs("json")}>{words.exportJson}</button>
          </div>
        </Dialog>
      )}
      {open === "remove" && chat && (
        <Dialog title={words.removeTitle} onClose={close}>
          <p>{words.removeMore(chat.title)}</p>
          <div class="choices">
            <button type="button" class="plain" onClick={close} autoFocus>{words.cancel}</button>
            <button type="button" class="danger" onClick={() => act(api.remove(chat.id), onRemoved)}>{words.remove}</button>
          </div>
        </Dialog>
      )}
    </header>
  );
}

function Tool({ icon, name, onClick }: { icon: "edit" | "download" | "trash"; name: string; onClick: () => void }) {
  return (
    <button type="button" class="quiet" aria-label={name} title={name} onClick={onClick}>
      <Icon name={icon} />
    </button>
  );
}
