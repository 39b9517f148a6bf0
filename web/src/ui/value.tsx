// Recorded values, folded. Content is built when it is opened; large content in parts.

import { createContext, type ComponentChildren } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import { asProblem, useRead } from "../app/reads";
import type { Problem } from "../app/source";
import { Failed, Rec, Waiting } from "./pieces";
import { count, eachWord, plural, preview, printable } from "./text";

const TEXT_CHARACTERS = 20_000; // of a text shown at once; the rest on a click
const ENTRIES = 100; // of a list or an object shown at once
const SHORT = 80; // characters of a value beside its name

// Where values are shown: path of the run for their blobs, the searched text, and the list that a step
// recorded under a name, for values that extend it.
export interface Around {
  run: string;
  find?: string;
  list?: (step: number, name: string) => Promise<unknown[] | null>;
}
export const AroundContext = createContext<Around>({ run: "" });

const opened = new Map<string, boolean>(); // values that the reader opened or closed, by key: kept while the point moves

const isShort = (value: any): boolean =>
  value === null || (typeof value === "object" ? (Array.isArray(value) ? value : Object.keys(value)).length === 0 : String(value).length <= SHORT && !String(value).includes("\n"));

// True if a text occurs inside a value; a blob's content is not looked at.
export const holds = (value: unknown, find: string): boolean => find !== "" && eachWord(value, (word) => word.toLowerCase().includes(find));

// A text in blocks that are laid out when they become visible, cut at line ends where possible: a
// browser needs minutes for one line of millions of characters.
function blocks(text: string, to: number): string[] {
  const out = [];
  for (let start = 0; start < to; ) {
    const end = Math.min(to, start + TEXT_CHARACTERS);
    const line = end < to ? text.slice(start, end).lastIndexOf("\n") : -1; // looked for in this part alone
    const next = line < 0 ? end : start + line + 1;
    out.push(printable(text.slice(start, next)));
    start = next;
  }
  return out;
}

// A text in full: its first part, and a button for the rest.
export function TextBlock({ text }: { text: string }) {
  const { find = "" } = useContext(AroundContext);
  const [isWhole, setWhole] = useState(false);
  const at = find ? text.toLowerCase().indexOf(find) : -1;
  const first = Math.max(TEXT_CHARACTERS, at < 0 ? 0 : at + 2_000);
  const isCut = text.length > first && !isWhole;
  return (
    <div>
      <pre class="rec text" dir="auto" tabIndex={0}>{blocks(text, isCut ? first : text.length).map((part, index) => <span key={index} class="block">{part}</span>)}</pre>
      {isCut && <button type="button" class="more" onClick={() => setWhole(true)}>Show all {count(text.length)} characters</button>}
    </div>
  );
}

// A folded part. Its content is built when it is first opened.
export function Fold({ label, summary = null, open = false, id = null, class: kind = "", chips, data, children }: {
  label: string;
  summary?: string | null;
  open?: boolean;
  id?: string | null; // remembers what the reader did
  class?: string;
  chips?: ComponentChildren;
  data?: Record<string, string>;
  children: () => ComponentChildren;
}) {
  const [isOpen, setOpen] = useState((id === null ? undefined : opened.get(id)) ?? open);
  const [isBuilt, setBuilt] = useState(isOpen);
  const onToggle = (event: Event) => {
    const now = (event.currentTarget as HTMLDetailsElement).open;
    if (now === isOpen) return;
    setOpen(now);
    if (now) setBuilt(true);
    if (id !== null) opened.set(id, now);
  };
  return (
    <details class={`fold ${kind}`.trim()} open={isOpen} onToggle={onToggle} {...data}>
      <summary><Rec text={label} class="label" />{summary === null ? null : <Rec text={summary} class="dim" />}{chips}</summary>
      {isBuilt && <div class="inside">{children()}</div>}
    </details>
  );
}

// A value as elements. `name`: of the argument that it is part of.
export function Value({ value, name, depth = 0 }: { value: any; name?: string; depth?: number }) {
  if (typeof value === "string") {
    if (value.length > SHORT || value.includes("\n")) return <TextBlock text={value} />;
    return <code class="rec string" dir="auto">{printable(value) || "(empty text)"}</code>;
  }
  if (value === null || typeof value !== "object") return <code class="rec">{String(value ?? null)}</code>;
  if (typeof value.$blob?.sha256 === "string") return <Blob facts={value.$blob} name={name} depth={depth} />;
  if (value.$append) return <Appended facts={value.$append} name={name} depth={depth} />;
  return <Entries value={value} name={name} depth={depth} />;
}

const BLOB_BYTES = 256 * 1024; // a smaller blob is read when it is shown

function Blob({ facts, name, depth }: { facts: { sha256: string; size?: number }; name?: string; depth: number }) {
  const { run } = useContext(AroundContext);
  const [isRead, setRead] = useState((facts.size ?? 0) <= BLOB_BYTES);
  const read = useRead<unknown>(isRead && run ? `${run}/blobs/${facts.sha256}` : null, { size: facts.size });
  return (
    <div>
      <p class="dim">blob, {count(facts.size ?? 0)} bytes, SHA-256 <Rec text={facts.sha256} class="mono" />{read.problem ? <>; it is not shown: <Rec text={read.problem.detail || read.problem.title} /></> : null}</p>
      {!isRead && <button type="button" class="more" onClick={() => setRead(true)}>Show its content</button>}
      {read.data !== null && <Value value={read.data} name={name} depth={depth} />}
      {read.loading && <Waiting />}
    </div>
  );
}

function Appended({ facts, name, depth }: { facts: { to: number; count: number; items: any }; name?: string; depth: number }) {
  const size = Array.isArray(facts.items) ? plural(facts.items.length, "more item") : "more items";
  return (
    <div class="entries">
      <Fold label={plural(facts.count, "item")} summary={`as in step ${facts.to}`}>{() => <Before step={facts.to} name={name ?? ""} size={facts.count} depth={depth} />}</Fold>
      <p class="dim">and {size}</p>
      <Value value={facts.items} name={name} depth={depth + 1} />
    </div>
  );
}

// The list that a value extends, as an earlier step recorded it.
function Before({ step, name, size, depth }: { step: number; name: string; size: number; depth: number }) {
  const { list } = useContext(AroundContext);
  const [items, setItems] = useState<unknown[] | null>();
  const [problem, setProblem] = useState<Problem | null>(null);
  useEffect(() => {
    Promise.resolve(list?.(step, name) ?? null).then(setItems, (error) => setProblem(asProblem(error)));
  }, []);
  if (problem) return <Failed problem={problem} />;
  if (items === undefined) return <Waiting />;
  if (!items) return <p class="dim">the list that it extends is not at hand</p>;
  return <Value value={items.slice(0, size)} name={name} depth={depth + 1} />;
}

function Entries({ value, name, depth }: { value: any; name?: string; depth: number }) {
  const { find = "" } = useContext(AroundContext);
  const isList = Array.isArray(value);
  const names = isList && !find ? [] : Object.keys(value); // of a list of millions they would be as large as it is
  const length = isList ? value.length : names.length;
  const hit = find ? names.findLastIndex((key) => holds(key, find) || holds(value[key], find)) : -1;
  const [size, setSize] = useState(ENTRIES);
  const shown = Math.min(length, Math.max(size, hit + 1));
  if (!length) return <code class="rec">{isList ? "[]" : "{}"}</code>;
  return (
    <div class="entries">
      {Array.from({ length: shown }, (_, at) => {
        const key = isList ? String(at) : names[at];
        const inner = value[key];
        const place = depth === 0 && name === undefined ? key : name;
        if (isShort(inner)) return <div key={key} class="entry"><Rec text={key} class="label" /><Value value={inner} name={place} depth={depth + 1} /></div>;
        const isOpen = holds(inner, find) || (length === 1 && depth < 2);
        return <Fold key={`${key} ${isOpen}`} label={key} summary={preview(inner)} open={isOpen}>{() => <Value value={inner} name={place} depth={depth + 1} />}</Fold>;
      })}
      {shown < length && <button type="button" class="more" onClick={() => setSize(shown + ENTRIES)}>Show {count(Math.min(ENTRIES, length - shown))} more of {count(length)}</button>}
    </div>
  );
}

// A named value, folded, with its preview.
export function Payload({ label, value, open = false, name }: { label: string; value: unknown; open?: boolean; name?: string }) {
  const { find = "" } = useContext(AroundContext);
  const isHit = holds(value, find);
  return <Fold key={`${label} ${isHit}`} label={label} summary={preview(value)} open={open || isHit} id={isHit ? null : label}>{() => <Value value={value} name={name} />}</Fold>;
}

export function failureText(error: any): string {
  if (typeof error !== "object" || error === null) return String(error);
  return error.message ? `${error.type}: ${error.message}` : String(error.type);
}

export function ErrorNode({ error }: { error: any }) {
  return (
    <>
      <TextBlock text={failureText(error)} />
      {Array.isArray(error?.arguments) && error.arguments.length > 1 && <Payload label="error's arguments" value={error.arguments} />}
    </>
  );
}

