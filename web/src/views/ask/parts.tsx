// Parts of the views that answer questions: links, tables, reports, differences, recorded values.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { address, query, setQuery } from "../../app/place";
import { useTitle } from "../../app/shell";
import { count, differences, inLine, preview, printable, short } from "../../ui/text";
import { Empty, Rec, Select } from "../../ui/pieces";

// The lines that the command prints with --json, and a report's blocks.
export interface Lines {
  lines: any[];
  blocks: Block[];
  position: number | null;
}
export type Block =
  | { block: "heading"; text: string }
  | { block: "paragraph"; text: string; verdict: string; brief: boolean }
  | { block: "table"; columns: string[]; rows: string[][]; title: string; left_out: string; left_out_before: boolean }
  | { block: "plot"; kind: string; metric: string };

export const ofKind = (lines: any[], kind: string): any[] => lines.filter((line) => line.kind === kind);

// ------------------------------------------------------------ links

export const runPath = (run: string): string => `/runs/${encodeURIComponent(run)}`;

export function RunLink({ run, at }: { run: string; at?: string | number | null }) {
  return <a class="mono" href={address(runPath(run), { at })} title={run}><Rec text={short(run)} /></a>;
}

export function EventLink({ run, at, children }: { run: string | null | undefined; at: string | null | undefined; children?: ComponentChildren }) {
  if (!run || !at) return at ? <span class="mono">{at}</span> : null;
  return <a class="mono" href={address(runPath(run), { at })} title={`Event ${at} of run ${run}`}>{children ?? at}</a>;
}

// ------------------------------------------------------------ values

// A recorded value: in one line, and in full when it is opened. Only opened parts exist.
export function Value({ value, open = false, label }: { value: unknown; open?: boolean; label?: string }) {
  const [isOpen, setOpen] = useState(open);
  const isLong = typeof value === "string" ? value.length > 100 || value.includes("\n") : typeof value === "object" && value !== null;
  if (!isLong) return <span class="mono value"><Rec text={typeof value === "string" ? value : JSON.stringify(value) ?? "nothing"} /></span>;
  return (
    <details class="value" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary class="mono">{label ? <span class="dim">{label} </span> : null}<Rec text={preview(value, 120)} /></summary>
      {isOpen && <pre class="whole" tabIndex={0} aria-label={label ?? "the whole value"}>{whole(value)}</pre>}
    </details>
  );
}

const SHOWN_CHARACTERS = 200_000;

function whole(value: unknown): string {
  let text: string;
  try {
    text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  } catch {
    text = preview(value, SHOWN_CHARACTERS); // nested too deep for the browser
  }
  const cut = text.length - SHOWN_CHARACTERS;
  return printable(cut > 0 ? `${text.slice(0, SHOWN_CHARACTERS)}\n… and ${cut.toLocaleString("en-US")} characters more: the raw JSON has them` : text);
}

// ------------------------------------------------------------ tables and reports

export interface Column<T> {
  name: string;
  cell: (row: T) => ComponentChildren;
  right?: boolean;
}

export function Table<T>({ columns, rows, label, empty, rowKey }: { columns: Column<T>[]; rows: T[]; label: string; empty?: string; rowKey?: (row: T, index: number) => string | number }) {
  if (!rows.length) return <Empty>{empty ?? `Nothing to list: ${label}.`}</Empty>;
  return (
    <div class="scroll" role="group" aria-label={label} tabIndex={0}>
      <table class="grid">
        <thead><tr>{columns.map((each, index) => <th key={index} scope="col" class={each.right ? "right" : ""}>{each.name || <span class="unseen">{label}</span>}</th>)}</tr></thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={rowKey?.(row, index) ?? index}>{columns.map((each, at) => <td key={at} class={each.right ? "right" : ""}>{each.cell(row)}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

// A report in words: its headings, sentences and tables; `plot` draws what a picture shows.
export function Report({ blocks, plot, run }: { blocks: Block[]; plot?: (kind: string, metric: string) => ComponentChildren; run?: string | null }) {
  return <div class="report">{blocks.map((block, index) => <ReportBlock key={index} block={block} plot={plot} run={run} />)}</div>;
}

const ADDRESS = /^\d+\.\d+$/; // a score may have the same form: only the column "at" has addresses

function ReportBlock({ block, plot, run }: { block: Block; plot?: (kind: string, metric: string) => ComponentChildren; run?: string | null }) {
  if (block.block === "heading") return <h2>{inLine(block.text)}</h2>;
  if (block.block === "plot") return <>{plot?.(block.kind, block.metric)}</>;
  if (block.block === "paragraph") return <p class={`${block.brief ? "brief" : ""} ${block.verdict ? `verdict ${block.verdict.replaceAll(" ", "-")}` : ""}`.trim()}>{inLine(block.text)}</p>;
  const columns = block.columns.map((name, at) => ({
    name: name.replace(/^>/, "").replace(/^-$/, ""),
    right: name.startsWith(">"),
    cell: (row: string[]) => (run && name.replace(/^>/, "") === "at" && ADDRESS.test(row[at]) ? <EventLink run={run} at={row[at]} /> : name.startsWith("run of") && row[at] ? <RunLink run={row[at]} /> : <Rec text={row[at]} />),
  }));
  const left = block.left_out && <p class="note">{inLine(block.left_out)}</p>;
  return (
    <section>
      {block.title && <h3>{inLine(block.title)}</h3>}
      {block.left_out_before && left}
      <Table columns={columns} rows={block.rows} label={block.title || "table"} />
      {!block.left_out_before && left}
    </section>
  );
}

// ------------------------------------------------------------ differences of texts

const HEADERS = /^(diff --git|index |new file|deleted file|old mode|new mode|--- |\+\+\+ |similarity|rename )/;

// A difference in the unified format; signs tell the lines apart, not color alone.
export function Unified({ text, label = "difference" }: { text: string; label?: string }) {
  const lines = text.replace(/\n$/, "").split("\n");
  if (!text.trim()) return <Empty>Nothing changed.</Empty>;
  return (
    <pre class="unified" tabIndex={0} aria-label={label}>
      {lines.map((line, index) => {
        const kind = HEADERS.test(line) ? "head" : line.startsWith("@@") ? "place" : line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : "";
        return <span key={index} class={kind}>{printable(line) + "\n"}</span>;
      })}
    </pre>
  );
}

// Where two values differ, as paths with both sides; the rest is counted.
const DIFFERENCES_MAX = 50;
export function Changes({ a, b }: { a: unknown; b: unknown }) {
  const all = useMemo(() => differences(a, b), [a, b]);
  const text = (path: (string | number)[]) => path.reduce<string>((to, key) => (typeof key === "number" ? `${to}[${key}]` : to ? `${to}.${key}` : key), "") || "value";
  const side = (value: unknown) => (value === undefined ? <span class="dim">missing</span> : <Value value={value} />);
  return (
    <>
      <Table label="differing fields" rows={all.slice(0, DIFFERENCES_MAX)} empty="The values are equal." columns={[
        { name: "field", cell: (each) => <Rec text={text(each.path)} class="mono" /> },
        { name: "a", cell: (each) => side(each.before) },
        { name: "b", cell: (each) => side(each.after) },
      ]} />
      {all.length > DIFFERENCES_MAX && <p class="note">{`${count(all.length - DIFFERENCES_MAX)} more fields differ.`}</p>}
    </>
  );
}

// ------------------------------------------------------------ fields

// A text that the address holds. It is set at Enter, or when the field is left.
export function Field({ name, label, placeholder, list, wide, type = "text" }: { name: string; label: string; placeholder?: string; list?: string[]; wide?: boolean; type?: "text" | "search" }) {
  const [text, setText] = useState(query.value[name] ?? "");
  useEffect(() => setText(query.value[name] ?? ""), [query.value[name]]);
  const give = () => text !== (query.value[name] ?? "") && setQuery({ [name]: text });
  return (
    <label class={`field ${wide ? "wide" : ""}`}>
      <span>{label}</span>
      <input type={type} value={text} placeholder={placeholder} list={list && `list-${name}`} autocomplete="off" spellcheck={false} onInput={(event) => setText(event.currentTarget.value)} onBlur={give} onKeyDown={(event) => event.key === "Enter" && event.currentTarget.blur()} />
      {list && <datalist id={`list-${name}`}>{list.map((each) => <option key={each} value={each} />)}</datalist>}
    </label>
  );
}

export function Choice({ name, label, options }: { name: string; label: string; options: [string, string][] }) {
  return <Select label={label} value={query.value[name] ?? ""} options={options} set={(value) => setQuery({ [name]: value })} />;
}

// A view: the title of its window, its heading with a note and fields, and its content.
export function Page({ title: name, heading, note, fields, wide, children }: { title: string; heading: ComponentChildren; note?: ComponentChildren; fields?: ComponentChildren; wide?: boolean; children: ComponentChildren }) {
  useTitle(name);
  return (
    <div class={`page ask ${wide ? "wide-page" : ""}`.trim()}>
      <div class="ask-head">
        <h1>{heading}</h1>
        {note && <p class="note">{note}</p>}
        {fields && <div class="fields">{fields}</div>}
      </div>
      {children}
    </div>
  );
}
