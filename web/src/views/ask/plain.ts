// Replaces `@codemirror/language` and `@lezer/common` in the built page (build.mjs): the editor colors words by an
// expression and has no grammar, so its tree is never read. The package and the parser would be 36 KB.

import { Facet } from "@codemirror/state";

function none(): never {
  throw new Error("the SQL editor has no grammar");
}

export const indentUnit = Facet.define<string, string>({ combine: (values) => values[0] ?? "  " });
export const syntaxTree = none;
export const getIndentUnit = none;
export const getIndentation = none;
export const indentString = none;
export const matchBrackets = none;
export class IndentContext {}
export class NodeProp {}
