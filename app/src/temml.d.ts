// What is used of the library: the tree, which its own types leave out.
declare module "temml" {
  export interface MathNode {
    type?: string;
    attributes?: Record<string, string>;
    children?: MathNode[];
    text?: string;
  }
  interface Options {
    displayMode: boolean;
    throwOnError: boolean;
    trust: boolean;
    strict: boolean;
    maxExpand: number;
    maxSize: [number, number];
  }
  const temml: { __renderToMathMLTree(tex: string, options: Options): MathNode };
  export default temml;
}
