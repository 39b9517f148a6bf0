// A SQL editor with completion from the schema. It lives in a shadow root, since its styles are made at
// run time: a document's content policy refuses such styles, and a shadow root adopts them. Words are
// colored by one expression: a grammar would double the size of this part.

import { autocompletion, completionKeymap, type Completion, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { history, redo, undo } from "@codemirror/commands";
import { EditorState } from "@codemirror/state";
import { Decoration, EditorView, keymap, lineNumbers, MatchDecorator, placeholder, ViewPlugin, type DecorationSet, type PluginValue } from "@codemirror/view";

export interface ColumnFacts { table: string; column: string; type: string; comment: string | null }

const KEYWORDS =
  "all and any anti as asc asof between by case cast cross cube current date_trunc desc describe distinct else end escape except exclude exists extract false filter first following for from full glob group grouping having if ilike in inner intersect interval is join last lateral left like limit natural not null nulls offset on or order outer over partition pivot positional preceding qualify range recursive replace right rollup row rows sample select semi similar sets summarize table tablesample then time to true try_cast unbounded union unpivot using values when where window with within";
const FUNCTIONS =
  "abs arg_max arg_min array_agg avg coalesce concat count date_diff epoch_ms first floor greatest if json_extract last least len length list list_contains lower max median min mode nullif quantile_cont range regexp_extract regexp_matches replace round row_number split starts_with stddev string_agg strftime substring sum trim unnest upper";

const WORDS = new Set(KEYWORDS.split(" "));
const TOKEN = /--[^\n]*|'(?:[^']|'')*'?|"(?:[^"]|"")*"?|\b\d+(?:\.\d+)?(?:e[+-]?\d+)?\b|\b[a-z_]\w*\b/gi;

function kindOf(token: string): string | null {
  if (/^\d/.test(token)) return "number";
  const sign = { "-": "comment", "'": "string" }[token[0]];
  return sign ?? (WORDS.has(token.toLowerCase()) ? "keyword" : null);
}

const matcher = new MatchDecorator({
  regexp: TOKEN,
  decorate: (add, from, to, [token]) => {
    const kind = kindOf(token);
    if (kind) add(from, to, Decoration.mark({ class: `sql-${kind}` }));
  },
});

const colored = ViewPlugin.define(
  (view) => ({
    decorations: matcher.createDeco(view),
    update(update) {
      this.decorations = matcher.updateDeco(update, this.decorations!);
    },
  }) as PluginValue & { decorations: DecorationSet },
  { decorations: (plugin) => plugin.decorations },
);

const look = EditorView.theme({
  "&": { fontSize: "13px", color: "var(--text)", backgroundColor: "var(--panel)" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", maxHeight: "38vh", minHeight: "118px", overflow: "auto" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--inset)", color: "var(--dim)", border: "0" },
  ".cm-tooltip": { backgroundColor: "var(--panel)", color: "var(--text)", border: "1px solid var(--line)", borderRadius: "6px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent-soft)", color: "var(--accent)" },
  ".cm-completionDetail": { color: "var(--dim)", fontStyle: "normal" },
  ".cm-placeholder": { color: "var(--dim)" },
  ".sql-keyword": { color: "var(--accent)", fontWeight: "600" },
  ".sql-string": { color: "var(--good)" },
  ".sql-number": { color: "var(--warn)" },
  ".sql-comment": { color: "var(--dim)", fontStyle: "italic" },
});

const AFTER_TABLE = /\b(from|join|describe|summarize|table|update|into)\s+["\w]*$/i;
const word = (label: string, type: string): Completion => ({ label, type });
const BASIC = [...KEYWORDS.split(" ").map((each) => word(each.toUpperCase(), "keyword")), ...[...new Set(FUNCTIONS.split(" "))].map((each) => word(each, "function"))];

// Columns after `table.` or `alias.`; tables after FROM and JOIN; elsewhere the columns of named tables first.
function completions(tables: Map<string, ColumnFacts[]>, context: CompletionContext): CompletionResult | null {
  const at = context.matchBefore(/\w*$/)!;
  const doc = context.state.doc.toString();
  const columnsOf = (table: string, boost: number): Completion[] => (tables.get(table) ?? []).map((each) => ({ label: each.column, type: "property", detail: `${each.type.toLowerCase().slice(0, 30)} · ${table}`, info: each.comment ?? undefined, boost }));
  const dotted = /(\w+)\.$/.exec(doc.slice(0, at.from));
  if (dotted) {
    const name = dotted[1];
    const aliased = new RegExp(`\\b(\\w+)\\s+(?:as\\s+)?${name}\\b`, "i").exec(doc)?.[1] ?? "";
    const options = columnsOf(tables.has(name) ? name : aliased, 0);
    return options.length ? { from: at.from, options, validFor: /^\w*$/ } : null;
  }
  if (at.from === at.to && !context.explicit) return null;
  const names = [...tables.keys()].map((name) => word(name, "class"));
  if (AFTER_TABLE.test(doc.slice(0, context.pos))) return { from: at.from, options: names, validFor: /^\w*$/ };
  const named = [...tables.keys()].filter((name) => new RegExp(`\\b${name}\\b`, "i").test(doc));
  return { from: at.from, options: [...named.flatMap((name) => columnsOf(name, 20)), ...BASIC, ...names], validFor: /^\w*$/ };
}

export type Editor = ReturnType<typeof editor>;

export function editor(host: HTMLElement, text: string, run: () => void) {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  let tables = new Map<string, ColumnFacts[]>();
  const view = new EditorView({
    parent: root,
    root,
    state: EditorState.create({
      doc: text,
      extensions: [
        keymap.of([
          { key: "Mod-Enter", run: () => (run(), true) },
          { key: "Mod-z", run: undo, preventDefault: true },
          { key: "Mod-y", mac: "Mod-Shift-z", run: redo, preventDefault: true },
          ...completionKeymap,
        ]),
        lineNumbers(), history(), colored, look, EditorView.lineWrapping,
        placeholder("FROM runs SELECT workflow, count(*) GROUP BY ALL"),
        autocompletion({ override: [(context) => completions(tables, context)] }),
        EditorView.contentAttributes.of({ "aria-label": "SQL; Ctrl+Enter runs it", spellcheck: "false" }),
      ],
    }),
  });
  return {
    text: () => view.state.doc.toString(),
    set: (next: string) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next } }),
    complete: (known: Map<string, ColumnFacts[]>) => void (tables = known),
    close: () => view.destroy(),
  };
}
