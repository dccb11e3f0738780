// A formula as MathML. TeX becomes a tree, and the tree becomes elements of the kinds listed here with the attributes listed here, so a formula
// has no more ways into the page than other text: no links, no styles, no pictures. What is no TeX is shown as it was written.

import { type ComponentChild, Fragment, h } from "preact";
import { useMemo } from "preact/hooks";
import temml, { type MathNode } from "temml";

const KINDS = new Set([
  "math", "mrow", "mi", "mn", "mo", "ms", "mtext", "mspace", "mfrac", "msqrt", "mroot", "mstyle", "mpadded", "mphantom",
  "msub", "msup", "msubsup", "munder", "mover", "munderover", "mmultiscripts", "mprescripts", "none", "mtable", "mtr", "mtd", "menclose",
]);
const ATTRIBUTES = new Set([
  "display", "mathvariant", "stretchy", "fence", "separator", "form", "lspace", "rspace", "minsize", "maxsize", "symmetric", "largeop",
  "movablelimits", "accent", "accentunder", "linethickness", "displaystyle", "scriptlevel", "width", "height", "depth", "voffset",
  "columnalign", "rowspacing", "columnspacing", "notation",
]);
/** What a formula may expand its own macros to, and how large it may be, in lines. */
const OPTIONS = { throwOnError: true, trust: false, strict: false, maxExpand: 200, maxSize: [20, 20] as [number, number] };

export function Maths({ tex, isBlock }: { tex: string; isBlock: boolean }) {
  const formula = useMemo(() => {
    try {
      return element(temml.__renderToMathMLTree(tex, { ...OPTIONS, displayMode: isBlock }));
    } catch {
      return null;
    }
  }, [tex, isBlock]);
  if (formula === null) return <code>{tex}</code>;
  return isBlock ? <span class="formula" tabIndex={0} role="group">{formula}</span> : <>{formula}</>;
}

function element(node: MathNode): ComponentChild {
  if (node.text !== undefined) return node.text;
  const children = (node.children ?? []).map(element);
  if (!node.type || !KINDS.has(node.type)) return h(Fragment, null, children);
  const attributes = Object.entries(node.attributes ?? {}).filter(([name]) => ATTRIBUTES.has(name));
  return h(node.type, Object.fromEntries(attributes), children);
}
