// Formulas in Markdown: `$…$` and `\(…\)` in a line, `$$…$$` and `\[…\]` on their own. They become tokens of the type `maths`, whose content is
// TeX and whose `block` says whether it stands alone. A formula that is not closed stays text, so an amount of money is one and a formula that
// is still being written does not swallow what follows.

import type { MarkdownIt } from "markdown-it";

/** A longer one is text: nobody writes it, and a model that repeats itself must not keep the page busy. */
const MAX_CHARS = 4000;

export function maths(parser: MarkdownIt) {
  parser.inline.ruler.before("escape", "maths", (state, silent) => {
    const found = inline(state.src, state.pos, state.posMax);
    if (!found) return false;
    if (!silent) {
      const token = state.push("maths", "", 0);
      token.content = found.tex;
      token.block = found.isBlock;
    }
    state.pos = found.end;
    return true;
  });
  parser.block.ruler.before(
    "fence",
    "maths_block",
    (state, startLine, endLine, silent) => {
      if (state.sCount[startLine]! - state.blkIndent >= 4) return false;
      const first = line(state, startLine);
      const [open, close] = first.startsWith("$$") ? ["$$", "$$"] : first.startsWith("\\[") ? ["\\[", "\\]"] : ["", ""];
      if (!open) return false;
      const lines = [first.slice(2)];
      let at = startLine;
      while (!lines[lines.length - 1]!.trimEnd().endsWith(close)) {
        at++;
        // A quotation or a list that ends here ends the formula with it.
        if (at >= endLine || state.sCount[at]! < state.blkIndent || lines[lines.length - 1]!.includes(close)) return false;
        lines.push(line(state, at));
      }
      const tex = lines.join("\n").trimEnd().slice(0, -2).trim();
      if (!tex || tex.includes(close) || tex.length > MAX_CHARS) return false;
      if (silent) return true;
      const token = state.push("maths", "", 0);
      token.content = tex;
      token.block = true;
      token.map = [startLine, at + 1];
      state.line = at + 1;
      return true;
    },
    { alt: ["paragraph", "reference", "blockquote", "list"] },
  );
}

interface Lines {
  src: string;
  bMarks: number[];
  tShift: number[];
  eMarks: number[];
}

const line = (state: Lines, at: number) => state.src.slice(state.bMarks[at]! + state.tShift[at]!, state.eMarks[at]);

interface Found {
  tex: string;
  isBlock: boolean;
  end: number;
}

/** The formula that begins at this place. */
export function inline(text: string, from: number, end = text.length): Found | null {
  const mark = text.slice(from, from + 2);
  if (mark === "\\(" || mark === "\\[") return closed(text, from + 2, end, mark === "\\(" ? "\\)" : "\\]", mark === "\\[");
  if (mark === "$$") return closed(text, from + 2, end, "$$", true);
  if (mark[0] !== "$") return null;
  // US$5 is money, and so is whatever is closed before a digit, or begins or ends with a space.
  if (from > 0 && /[\p{L}\p{N}\\]/u.test(text[from - 1]!)) return null;
  for (let at = from + 1; at < Math.min(end, from + MAX_CHARS); at++) {
    if (text[at] === "\\") {
      at++;
    } else if (text[at] === "$") {
      const tex = text.slice(from + 1, at);
      const isMoney = /^\d/.test(tex) && /\s[\p{L}]{2,}|[-–—,;:/]\s*$/u.test(tex);
      if (!tex || /^\s|\s$/.test(tex) || isMoney || /\p{N}/u.test(text[at + 1] ?? "")) return null;
      return { tex, isBlock: false, end: at + 1 };
    }
  }
  return null;
}

function closed(text: string, from: number, end: number, close: string, isBlock: boolean): Found | null {
  // Not to the end: a text of many openings would be looked through as often.
  const within = text.slice(from, from + MAX_CHARS + close.length).indexOf(close);
  const at = within < 0 ? -1 : from + within;
  const tex = at < 0 ? "" : text.slice(from, at).trim();
  if (!tex || at + close.length > end) return null;
  return { tex, isBlock, end: at + close.length };
}
