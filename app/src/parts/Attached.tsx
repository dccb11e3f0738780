// Files: those that are about to be sent, and those that were.

import type { Attachment, File } from "../attachments";
import { useSpeech } from "../words";
import { Icon } from "./Icon";

interface Props {
  files: Attachment[];
  onRemove: (id: number) => void;
}

/** What will be sent with the question, and what it takes of the context. */
export function Attached({ files, onRemove }: Props) {
  const { words, number } = useSpeech();
  const { attach } = words;
  if (files.length === 0) return null;
  const counts = files.map((file) => file.tokens);
  const sum = counts.every((tokens) => tokens !== null) ? counts.reduce((sum, tokens) => sum + (tokens ?? 0), 0) : null;
  return (
    <div class="attached">
      <ul aria-label={attach.files}>
        {files.map((file) => (
          <li key={file.id}>
            <Icon name="file" />
            <bdi class="name">{file.name}</bdi>
            <span class="count soft small">{file.isReading ? attach.reading : file.tokens === null ? attach.counting : words.tokens(number(file.tokens))}</span>
            <button type="button" class="quiet" aria-label={attach.remove(file.name)} title={attach.remove(file.name)} onClick={() => onRemove(file.id)}>
              <Icon name="close" />
            </button>
          </li>
        ))}
      </ul>
      {files.length > 1 && sum !== null && <p class="soft small" role="status">{attach.together(number(sum))}</p>}
    </div>
  );
}

/** What was sent, folded. */
export function Files({ files }: { files: File[] }) {
  const { words } = useSpeech();
  return (
    <>
      {files.map((file, i) => (
        <details key={i} class="file">
          <summary><bdi>{words.attach.file(file.name)}</bdi></summary>
          <pre>{file.text}</pre>
        </details>
      ))}
    </>
  );
}
