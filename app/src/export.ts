// A conversation as a file for people or for programs.

import type { WholeChat } from "./wire";
import type { Speech } from "./words";

export function markdown(chat: WholeChat, { words, time }: Speech): string {
  const parts = chat.messages.map((message) => {
    const who = message.role === "user" ? words.you : words.model;
    const thoughts = message.thinking ? `> ${message.thinking.trim().replaceAll("\n", "\n> ")}\n\n` : "";
    const end = message.ending && message.ending.reason !== "done" ? `\n\n*${words.reason[message.ending.reason]}*` : "";
    return `## ${who} (${time(message.created_ms)})\n\n${thoughts}${message.text}${end}\n`;
  });
  return `# ${chat.title}\n\n${parts.join("\n")}`;
}

/** Hands a text to the browser as a download. */
export function save(name: string, kind: string, text: string) {
  const address = URL.createObjectURL(new Blob([text], { type: kind }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  URL.revokeObjectURL(address);
}

/** A title as the name of a file, on any system. */
export function fileName(title: string, extension: string): string {
  const name = title.replace(/[^\p{L}\p{N} _-]+/gu, "").trim().slice(0, 60) || "ouzel";
  return `${name}.${extension}`;
}
