// Copies a text, and says that it did.

import { useEffect, useState } from "preact/hooks";
import { useSpeech } from "../words";
import { Icon } from "./Icon";

const SAYS_SO_MS = 1600;

export function CopyButton({ text, label, isNamed }: { text: string; label: string; isNamed?: boolean }) {
  const { words } = useSpeech();
  const [isCopied, setCopied] = useState(false);
  useEffect(() => {
    if (!isCopied) return;
    const timer = setTimeout(() => setCopied(false), SAYS_SO_MS);
    return () => clearTimeout(timer);
  }, [isCopied]);
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true), () => setCopied(false));
  return (
    <button type="button" class="quiet" onClick={copy} aria-label={isCopied ? words.copied : label} title={label}>
      <Icon name={isCopied ? "check" : "copy"} />
      {isNamed && <span>{isCopied ? words.copied : label}</span>}
    </button>
  );
}
