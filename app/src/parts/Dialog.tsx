// A dialog over the page: the browser keeps the focus in it, gives it back, and closes it with Escape.

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { useSpeech } from "../words";
import { Icon } from "./Icon";

interface Props {
  title: string;
  onClose: () => void;
  isWide?: boolean;
  children: ComponentChildren;
}

export function Dialog({ title, onClose, isWide, children }: Props) {
  const { words } = useSpeech();
  const id = useId();
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const closeOutside = (event: MouseEvent) => {
    if (event.target === dialog.current) dialog.current?.close();
  };
  return (
    <dialog ref={dialog} class={isWide ? "wide" : ""} aria-labelledby={id} onClose={onClose} onClick={closeOutside}>
      <div class="sheet">
        <header>
          <h2 id={id}>{title}</h2>
          <button type="button" class="quiet" aria-label={words.close} onClick={() => dialog.current?.close()}>
            <Icon name="close" />
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}
