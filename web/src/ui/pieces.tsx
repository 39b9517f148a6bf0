// Small parts that all views share.

import type { ComponentChildren, JSX } from "preact";
import { address } from "../app/place";
import type { Problem } from "../app/source";
import type { Read } from "../app/reads";
import { clock, count, inLine } from "./text";

// A recorded text as a separate element, to limit the effect of its direction.
export function Rec({ text, class: kind = "" }: { text: unknown; class?: string }) {
  return <bdi class={`rec ${kind}`.trim()}>{inLine(String(text))}</bdi>;
}

export const words = (name: string): string => name.replaceAll("_", " ");

export function Pill({ status, label }: { status: string; label?: string }) {
  return <span class={`pill ${status}`}>{inLine(label ?? words(status))}</span>;
}

// The status of a call: an outline does not say whether one without an outcome is in doubt or under way.
export const CallPill = ({ status }: { status: string }) => <Pill status={status} label={status === "requested" ? "no outcome" : undefined} />;

export function Chip({ children, class: kind = "", title }: { children: ComponentChildren; class?: string; title?: string }) {
  return <span class={`chip ${kind}`.trim()} title={title}>{children}</span>;
}

// The name of an agent in its color; the number is its place in the run.
export function Who({ name, number }: { name: string; number?: number }) {
  return <span class={`who ${number === undefined ? "" : `agent-${number % 8}`}`}><Rec text={name} /></span>;
}

export function Time({ iso }: { iso: string | null | undefined }) {
  return iso ? <time class="mono" dateTime={iso} title={`${iso} (UTC)`}>{clock(iso)}</time> : null;
}

// Names and values; pairs without a value are left out.
export function Facts({ pairs, class: kind = "facts" }: { pairs: [string, ComponentChildren][]; class?: string }) {
  const present = pairs.filter(([, value]) => value !== null && value !== undefined && value !== false && value !== "");
  return (
    <dl class={kind}>
      {present.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{typeof value === "string" || typeof value === "number" ? <Rec text={value} /> : value}</dd>
        </div>
      ))}
    </dl>
  );
}

// A refusal: fact, value, remedy, and a button to try again.
export function Failed({ problem, again }: { problem: Problem; again?: () => void }) {
  const value = problem.value === undefined || problem.value === null ? "" : typeof problem.value === "string" ? problem.value : JSON.stringify(problem.value);
  return (
    <div class="failed" role="alert">
      <p class="failed-title">{problem.title}</p>
      {problem.detail && <p><Rec text={problem.detail} /></p>}
      {value && !problem.detail.includes(value) && <p class="mono"><Rec text={value} /></p>}
      {problem.remedy && <p class="remedy">{problem.status === 404 && problem.detail.startsWith("run ") ? <a href={address("/runs")}>See the list of runs</a> : <Rec text={problem.remedy} />}</p>}
      {again && <button type="button" onClick={again}>Try again</button>}
    </div>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="note empty">{children}</p>;
}

export function Waiting({ what = "Loading" }: { what?: string }) {
  return <p class="note waiting" role="status">{what}…</p>;
}

// The state of a read around its content: a refusal, the first wait, or the content.
export function Shown<T>({ read, name, children }: { read: Read<T>; name?: string; children: (data: T) => ComponentChildren }): JSX.Element {
  if (read.data === null && read.problem) return <Failed problem={read.problem} again={read.reload} />;
  if (read.data === null) return <Waiting />;
  return (
    <>
      {read.problem && <Failed problem={read.problem} again={read.reload} />}
      {children(read.data)}
      {read.link && <AsOf position={read.position ?? (read.data as { position?: number }).position} link={read.link} name={name} />}
    </>
  );
}

// As of which position an answer holds, and its JSON, as the server sends it to this caller.
export function AsOf({ position, link, name }: { position?: number | null; link?: string | null; name?: string }) {
  const text = position === null || position === undefined ? "" : `As of position ${count(position)}. `;
  return text || link ? <p class="note as-of"><span>{text}</span>{link && <a href={link} title={link} target="_blank" rel="noreferrer">{name ? `JSON of ${name}` : "JSON"}</a>}</p> : null;
}

// A labelled choice of values, each with its text.
export function Select({ label, value, options, set, class: kind = "field" }: { label: string; value: string; options: [string, string][]; set: (value: string) => void; class?: string }) {
  return (
    <label class={kind}><span>{label}</span>
      <select value={value} onChange={(event) => set(event.currentTarget.value)}>{options.map(([each, text]) => <option key={each} value={each}>{text}</option>)}</select>
    </label>
  );
}

// A panel of a run: its heading for those who hear it, a bar, and its body.
export function Panel({ id, name, label, bar, body, busy, children }: { id: string; name: string; label: string; bar: ComponentChildren; body?: Record<string, unknown>; busy?: boolean; children: ComponentChildren }) {
  return (
    <section id={id} class="panel" role="tabpanel" aria-label={label}>
      <h2 class="unseen">{name}</h2>
      <div class="bar">{bar}</div>
      <div id={`${id}-now`} class="body" aria-busy={busy} {...body}>{children}</div>
    </section>
  );
}

// Tabs of a group of panels, with the keys of the ARIA pattern.
export interface Tab {
  id: string;
  label: string;
  size?: number | null;
  news?: string;
}

// The id of a tab is PREFIX-ID, and that of its panel ID.
export function Tabs({ tabs, chosen, choose, label, prefix = "tab" }: { tabs: Tab[]; chosen: string; choose: (id: string) => void; label: string; prefix?: string }) {
  const onKey = (event: KeyboardEvent) => {
    const at = tabs.findIndex((tab) => tab.id === chosen);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const next = tabs[(to + tabs.length) % tabs.length];
    choose(next.id);
    (event.currentTarget as Element).querySelector<HTMLElement>(`#${prefix}-${next.id}`)?.focus();
  };
  return (
    <div class="switch" role="tablist" aria-label={label} onKeyDown={onKey}>
      {tabs.map((tab) => (
        <button key={tab.id} type="button" role="tab" id={`${prefix}-${tab.id}`} aria-controls={tab.id} aria-selected={tab.id === chosen} tabIndex={tab.id === chosen ? 0 : -1} onClick={() => choose(tab.id)}>
          {tab.label} {tab.size === undefined ? null : <span class="size">{tab.size ? count(tab.size) : ""}</span>}
          {tab.news ? <span class="news" title={tab.news}><span aria-hidden="true">•</span><span class="unseen">{tab.news}</span></span> : null}
        </button>
      ))}
    </div>
  );
}
