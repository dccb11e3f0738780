// What a model writes, as elements. Markdown becomes tokens, and tokens become elements of the kinds listed here: there is no way from a
// model's text to HTML, so nothing has to be cleaned. Pictures are named and not loaded.

import MarkdownIt, { type Token } from "markdown-it";
import { type ComponentChild, Fragment, h } from "preact";
import { useMemo } from "preact/hooks";
import { maths } from "../maths";
import { type Speech, useSpeech } from "../words";
import { CopyButton } from "./CopyButton";
import { Maths } from "./Maths";

const parser = new MarkdownIt({ html: false, linkify: true, breaks: true }).use(maths);

const KINDS = new Set([
  "p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "strong", "em", "s", "a",
  "table", "thead", "tbody", "tr", "th", "td",
]);

interface Open {
  token: Token | null;
  children: ComponentChild[];
}

export function Markdown({ text }: { text: string }) {
  const speech = useSpeech();
  const children = useMemo(() => elements(parser.parse(text, {}), speech), [text, speech]);
  return <div class="markdown">{children}</div>;
}

function elements(tokens: Token[], speech: Speech): ComponentChild[] {
  const open: Open[] = [{ token: null, children: [] }];
  const last = () => open[open.length - 1]!;
  for (const token of tokens) {
    if (token.nesting === 1) {
      open.push({ token, children: [] });
    } else if (token.nesting === -1) {
      const closed = open.pop()!;
      last().children.push(element(closed.token!, closed.children, speech));
    } else {
      last().children.push(leaf(token, speech));
    }
  }
  return open[0]!.children;
}

function element(token: Token, children: ComponentChild[], speech: Speech): ComponentChild {
  const kind = token.tag;
  // Paragraphs of tight lists are there and not seen.
  if (token.hidden || !KINDS.has(kind)) return h(Fragment, null, children);
  if (kind === "a") return link(String(token.attrGet("href") ?? ""), children);
  if (kind === "ol") return h("ol", { start: Number(token.attrGet("start") ?? 1) }, children);
  if (kind === "th" || kind === "td") {
    const align = /text-align:(\w+)/.exec(String(token.attrGet("style") ?? ""))?.[1];
    return h(kind, align ? { class: `to-${align}` } : null, children);
  }
  if (kind === "table") {
    return (
      <div class="table" tabIndex={0} role="region" aria-label={speech.words.table}>
        <table>{children}</table>
      </div>
    );
  }
  // A model's headings stand below those of the page.
  const level = /^h([1-6])$/.exec(kind)?.[1];
  return h(level ? `h${Math.min(6, Number(level) + 2)}` : kind, level ? { class: `level-${level}` } : null, children);
}

function link(href: string, children: ComponentChild[]): ComponentChild {
  if (!/^(https?:|mailto:)/i.test(href)) return h(Fragment, null, children);
  return (
    <a href={href} target="_blank" rel="noopener noreferrer" title={href}>
      {children}
    </a>
  );
}

function leaf(token: Token, speech: Speech): ComponentChild {
  switch (token.type) {
    case "inline":
      return h(Fragment, null, elements(token.children ?? [], speech));
    case "text":
      return token.content;
    case "softbreak":
    case "hardbreak":
      return <br />;
    case "maths":
      return <Maths tex={token.content} isBlock={token.block} />;
    case "code_inline":
      return <code>{token.content}</code>;
    case "fence":
    case "code_block":
      return <CodeBlock language={token.info.trim().split(/\s+/)[0] ?? ""} text={token.content} />;
    case "hr":
      return <hr />;
    case "image":
      return <em class="soft">{speech.words.imageNotShown(token.content)}</em>;
    default:
      return token.content;
  }
}

function CodeBlock({ language, text }: { language: string; text: string }) {
  const { words } = useSpeech();
  return (
    <figure class="code">
      <figcaption>
        <span>{language || words.code}</span>
        <CopyButton text={text} label={words.copy} isNamed />
      </figcaption>
      <pre tabIndex={0} role="region" aria-label={language || words.code}>
        <code>{text}</code>
      </pre>
    </figure>
  );
}
