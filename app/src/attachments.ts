// Files in a question: how they stand in its text, and how they come out of it again. They are part of the text, so that the model, the search and
// an export see the same.

import * as api from "./api";

export interface File {
  name: string;
  text: string;
}

/** A file that is about to be sent. */
export interface Attachment extends File {
  id: number;
  /** None, until the server has counted. */
  tokens: number | null;
  /** It is on its way, and has no text yet. */
  isReading: boolean;
}

export const MAX_FILES = 10;
const MAX_TEXT_BYTES = 1 << 20;
/** A file with longer runs of backticks stays text of the message. */
const MAX_FENCE = 1000;
const MAX_PDF_BYTES = 16 << 20;

export type Unfit = "tooMany" | "tooLong" | "noText" | "refused";

/** A file that cannot be attached; what went wrong elsewhere is another error. */
export class UnfitFile extends Error {
  constructor(
    readonly why: Unfit,
    readonly file: string,
    /** More of it, in English. */
    readonly detail = "",
  ) {
    super(why);
  }
}

/** The text of a file that a person chose. */
export async function read(file: globalThis.File): Promise<File> {
  const isPdf = file.type === "application/pdf" || /\.pdf$/i.test(file.name);
  if (file.size > (isPdf ? MAX_PDF_BYTES : MAX_TEXT_BYTES)) throw new UnfitFile("tooLong", file.name);
  const name = file.name.replace(/[\r\n]/g, " ");
  if (isPdf) return { name, text: await textOf(file) };
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    if (!text.includes("\0")) return { name, text: text.replace(/\r\n?/g, "\n") };
  } catch {
    // It is no UTF-8.
  }
  throw new UnfitFile("noText", file.name);
}

/** The server's words about a file do not say which. */
async function textOf(file: globalThis.File): Promise<string> {
  try {
    return (await api.textOfPdf(file)).text;
  } catch (error) {
    if (error instanceof api.Refused && error.status < 500 && error.status !== 401) throw new UnfitFile("refused", file.name, error.refusal.message);
    throw error;
  }
}

/** A fence is longer than any in the file. */
function block({ name, text }: File): string {
  const runs = text.match(/`{3,}/g) ?? [];
  const fence = "`".repeat(Math.max(2, ...runs.map((run) => run.length)) + 1);
  return `File: ${name}\n\n${fence}\n${text.replace(/\n+$/, "")}\n${fence}`;
}

export const withFiles = (text: string, files: File[]) => [text.trim(), ...files.map(block)].filter(Boolean).join("\n\n");

const END = /\n(`{3,})$/;
const HEAD = /^File: (.+)$/;
const GAP = "\n\n";

/** What a person wrote, and the files behind it. */
export function apart(whole: string): { text: string; files: File[] } {
  const files: File[] = [];
  let text = whole;
  for (let found = last(text); found; found = last(text)) {
    files.unshift(found.file);
    text = text.slice(0, found.at);
  }
  return { text, files };
}

/** The block that a text ends with. Its fence stands nowhere within the file, so that it is found by looking back once, however long the text is. */
function last(text: string): { at: number; file: File } | null {
  const fence = END.exec(text.slice(-MAX_FENCE))?.[1];
  if (!fence) return null;
  const end = text.length - fence.length - 1;
  const open = text.lastIndexOf(`${GAP}${fence}\n`, end - 1);
  if (open < 0) return null;
  const head = text.lastIndexOf("\n", open - 1) + 1;
  const name = HEAD.exec(text.slice(head, open))?.[1];
  if (!name || (head > 0 && text.slice(head - GAP.length, head) !== GAP)) return null;
  return { at: Math.max(0, head - GAP.length), file: { name, text: text.slice(open + GAP.length + fence.length + 1, end) } };
}
