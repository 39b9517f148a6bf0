// A SQL editor with completion from the schema. It lives in a shadow root, since its styles are made at
// run time: a document's content policy refuses such styles, and a shadow root adopts them.

import { autocompletion, closeBrackets, completionKeymap, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { keywordCompletionSource, schemaCompletionSource, SQLDialect, sql, PostgreSQL } from "@codemirror/lang-sql";
import { bracketMatching, HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { EditorState } from "@codemirror/state";
import { EditorView, keymap, lineNumbers, placeholder } from "@codemirror/view";
import { tags } from "@lezer/highlight";

export interface ColumnFacts { table: string; column: string; type: string; comment: string | null }

const DuckDB = SQLDialect.define({ ...PostgreSQL.spec, keywords: `${PostgreSQL.spec.keywords} qualify sample pivot unpivot exclude replace asof semi anti positional summarize describe`, caseInsensitiveIdentifiers: true });

const colors = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--accent)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--warn)" },
  { tag: tags.comment, color: "var(--dim)", fontStyle: "italic" },
]);

const look = EditorView.theme({
  "&": { fontSize: "13px", color: "var(--text)", backgroundColor: "var(--panel)" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", maxHeight: "38vh", minHeight: "110px", overflow: "auto" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--inset)", color: "var(--dim)", border: "0" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--accent-soft) !important" },
  ".cm-tooltip": { backgroundColor: "var(--panel)", color: "var(--text)", border: "1px solid var(--line)", borderRadius: "6px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent-soft)", color: "var(--accent)" },
  ".cm-completionDetail": { color: "var(--dim)", fontStyle: "normal" },
  ".cm-placeholder": { color: "var(--dim)" },
});

export interface Editor {
  text: () => string;
  set: (text: string) => void;
  complete: (columns: ColumnFacts[]) => void;
  close: () => void;
}

export function editor(host: HTMLElement, text: string, run: () => void, changed: (text: string) => void): Editor {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  let sources: ((context: CompletionContext) => CompletionResult | null | Promise<CompletionResult | null>)[] = [keywordCompletionSource(DuckDB)];
  const complete = async (context: CompletionContext): Promise<CompletionResult | null> => {
    const results = (await Promise.all(sources.map((source) => source(context)))).filter((each) => each !== null);
    if (!results.length) return null;
    const from = Math.max(...results.map((each) => each.from));
    return { ...results[0], from, options: results.filter((each) => each.from === from).flatMap((each) => [...each.options]) };
  };
  const view = new EditorView({
    parent: root,
    root,
    state: EditorState.create({
      doc: text,
      extensions: [
        keymap.of([{ key: "Mod-Enter", run: () => (run(), true) }, ...completionKeymap, ...defaultKeymap.filter((each) => each.key !== "Mod-Enter"), ...historyKeymap]),
        lineNumbers(), history(), bracketMatching(), closeBrackets(), sql({ dialect: DuckDB }), syntaxHighlighting(colors), look, EditorView.lineWrapping,
        placeholder("FROM runs SELECT workflow, count(*) GROUP BY ALL"),
        autocompletion({ override: [complete] }),
        EditorView.contentAttributes.of({ "aria-label": "SQL. Escape, then Tab, leaves the editor.", spellcheck: "false" }),
        EditorView.updateListener.of((update) => update.docChanged && changed(update.state.doc.toString())),
      ],
    }),
  });
  return {
    text: () => view.state.doc.toString(),
    set: (next) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next } }),
    complete: (columns) => {
      const schema: Record<string, { label: string; type: string; detail: string; info?: string }[]> = {};
      for (const each of columns) (schema[each.table] ??= []).push({ label: each.column, type: "property", detail: each.type.toLowerCase().slice(0, 40), info: each.comment ?? undefined });
      sources = [schemaCompletionSource({ dialect: DuckDB, schema }), keywordCompletionSource(DuckDB)];
    },
    close: () => view.destroy(),
  };
}
