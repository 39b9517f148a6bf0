// All runs: filters, an order, and the newest state of each, live.

import { useEffect, useRef, useState } from "preact/hooks";
import { isControl, useCommands } from "../app/keys";
import { address, go, query, setQuery } from "../app/place";
import { useRead, useReload } from "../app/reads";
import { useLive, useTitle } from "../app/shell";
import { VirtualList, type Place } from "../ui/list";
import type { Assigned, Stated } from "../run/answers";
import { Chip, Empty, Pill, Rec, Select, Shown, Time } from "../ui/pieces";
import { count, duration, plural, short } from "../ui/text";

// A row as of `hansard runs --json`.
export interface RunRow {
  run: string;
  workflow: string;
  status: string;
  agents: Record<string, string>;
  at_work: string[];
  steps: number | null;
  in_doubt_steps: number | null;
  under_way_steps: number;
  failed_steps: number | null;
  began: Stated | null;
  last: Stated | null;
  forked_from: string | null;
  labels: Record<string, string>;
  assigned?: Assigned | null; // not of a role
  error: { type?: string; message?: string } | null;
  problem: string | null;
  cost?: number | null;
  tokens?: number | null;
}

interface RunsAnswer {
  runs: RunRow[];
  next: number | null;
  found: number | null; // of all that match; null for a role
  probed: number;
  undated: number;
  unread: number;
  unknown: string[];
}

const STATUSES = ["open", "completed", "failed", "cancelled", "unknown"];
const SORTS: [string, string][] = [["", "Newest first (by start)"], ["began", "Newest by the source"], ["in_doubt", "Most in doubt"], ["failed", "Most failed"], ["steps", "Most steps"], ["longest", "Longest"], ["cost", "Highest cost"], ["tokens", "Most tokens"]];
const FILTERS = ["status", "workflow", "agent", "since", "until", "text"];
const ROW_HEIGHT = 54;
const PAGE = 100; // rows shown more at once
const SHOWN_MAX = 2_000; // as many as the server gives at once
const TYPING_MS = 250;
const RELOAD_MS = 700; // after a change of a run: further ones are gathered

const spent = (run: RunRow): number | null => {
  const [began, last] = [run.began?.at, run.last?.at].map((time) => (time ? Date.parse(time) : NaN));
  return Number.isNaN(began) || Number.isNaN(last) || run.began?.clock !== run.last?.clock ? null : Math.max(0, last - began);
};

// What the list leaves out, and names in the filters that no run has.
function leftOut({ probed, undated, unread, unknown }: RunsAnswer): string {
  return [
    unknown?.length && `no run has ${unknown.join(", ")}`,
    probed && `${plural(probed, "fork")} of probes left out`,
    undated && `${plural(undated, "run")} left out, as the source gives no time`,
    unread && `${plural(unread, "run")} left out, as they could not be read`,
  ].filter(Boolean).join("; ");
}

function Figure({ number, name, kind }: { number: number | null; name: string; kind: string }) {
  return number ? <span class={`pill ${kind}`}>{count(number)} {name}</span> : null;
}

function Row({ run, isCurrent, place }: { run: RunRow; isCurrent: boolean; place: Place }) {
  const labels = Object.entries(run.labels);
  const agents = Object.keys(run.agents);
  const { experiment, arm, task, trial } = run.assigned ?? {};
  return (
    <div role="listitem" {...place}><a class={`vrow run-row${isCurrent ? " current" : ""}`} href={address(`/runs/${encodeURIComponent(run.run)}`)} aria-current={isCurrent ? "true" : undefined}>
      <span class="run-status"><Pill status={run.status} /></span>
      <span class="run-name">
        <span class="run-title"><Rec text={run.workflow || "(no workflow)"} class="strong" /> {run.assigned && <Rec text={[experiment, arm, task, trial && `trial ${trial}`].filter(Boolean).join(" · ")} />} <Rec text={run.run} class="mono dim" /></span>
        <span class="run-more dim">
          {run.forked_from ? <span>fork of <Rec text={short(run.forked_from)} class="mono" /></span> : null}
          {run.at_work.length ? <span>at work: <Rec text={run.at_work.join(", ")} /></span> : agents.length ? <span><Rec text={agents.join(", ")} /></span> : null}
          {run.error?.message ? <span class="bad"><Rec text={run.error.message} /></span> : null}
          {run.problem ? <span class="bad"><Rec text={run.problem} /></span> : null}
          {labels.slice(0, 4).map(([name, value]) => <Chip key={name}><Rec text={`${name}=${value}`} /></Chip>)}
        </span>
      </span>
      <span class="run-figures">
        <Figure number={run.failed_steps} name="failed" kind="failed" />
        <Figure number={run.in_doubt_steps} name="in doubt" kind="in_doubt" />
        <Figure number={run.under_way_steps} name="under way" kind="requested" />
      </span>
      <span class="run-steps dim">{run.steps === null ? "" : plural(run.steps, "step")}{run.cost !== null && run.cost !== undefined ? <span title="Cost on record, US dollars"> · ${run.cost.toFixed(run.cost < 1 ? 4 : 2)}</span> : run.tokens ? <span> · {plural(run.tokens, "token")}</span> : null}</span>
      <span class="run-time dim">{run.began?.at ? <Time iso={run.began.at} /> : <span>no time</span>}<span>{duration(spent(run))}</span></span>
    </a></div>
  );
}

function Filters({ workflows, isRole, textRef }: { workflows: string[]; isRole: boolean; textRef: (node: HTMLInputElement | null) => void }) {
  const now = query.value;
  const typed = useRef<Record<string, string>>({}); // fields that the address has not yet
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  const [isAll, setAll] = useState(FILTERS.some((name) => name !== "status" && name !== "text" && now[name]));
  const field = (name: string, label: string, props: Record<string, unknown> = {}, kind = "field") => (
    <label class={kind}><span>{label}</span>
      <input value={now[name] ?? ""} autocomplete="off" spellcheck={false} {...props} onInput={(event) => {
        typed.current[name] = event.currentTarget.value.trim();
        clearTimeout(timer.current);
        timer.current = window.setTimeout(() => {
          setQuery(typed.current);
          typed.current = {};
        }, TYPING_MS);
      }} />
    </label>
  );
  return (
    <form class={isAll ? "filters all" : "filters"} role="search" aria-label="Filter runs" onSubmit={(event) => event.preventDefault()}>
      {field("text", "Text", { ref: textRef, type: "search", placeholder: "Run, workflow, label, error", "aria-keyshortcuts": "/", onKeyDown: (event: KeyboardEvent) => event.key === "Enter" && (event.currentTarget as HTMLElement).blur() }, "field grow")}
      <Select label="Status" value={now.status ?? ""} options={[["", "Any"], ...STATUSES.map((status): [string, string] => [status, status])]} set={(status) => setQuery({ status })} />
      <button type="button" class="quiet more-filters" aria-expanded={isAll} onClick={() => setAll(!isAll)}>{isAll ? "Fewer filters" : "More filters"}</button>
      {field("workflow", "Workflow", { list: "workflows" })}
      <datalist id="workflows">{workflows.map((name) => <option key={name} value={name} />)}</datalist>
      {field("agent", "Agent")}
      {field("since", "Begun since (with zone)", { placeholder: "2026-11-21T10:00:00Z" })}
      {field("until", "Until", { placeholder: "2026-11-22T10:00:00Z" })}
      {!isRole && <Select label="Order of all runs" value={now.sort ?? ""} options={SORTS} set={(sort) => setQuery({ sort })} />}
    </form>
  );
}

export default function Runs() {
  const chosen = Object.fromEntries([...FILTERS, "sort"].map((name) => [name, query.value[name]]));
  const filter = JSON.stringify(chosen);
  const [more, setMore] = useState({ filter, size: PAGE });
  const size = more.filter === filter ? more.size : PAGE;
  const read = useRead<RunsAnswer>("/runs", { ...chosen, limit: size });
  const [at, setAt] = useState(0);
  const text = useRef<HTMLInputElement | null>(null);
  useTitle("Runs");
  useLive("/live", {}, useReload(read, RELOAD_MS));
  const runs = read.data?.runs ?? [];
  const next = read.data?.next ?? null;
  const here = Math.max(0, Math.min(runs.length - 1, at)); // the list may have become shorter
  const move = (step: number) => setAt(Math.max(0, Math.min(runs.length - 1, here + step)));
  useCommands([
    { title: "Next run", keys: ["j", "ArrowDown"], run: () => move(1), isHidden: true },
    { title: "Run before", keys: ["k", "ArrowUp"], run: () => move(-1), isHidden: true },
    { title: "Open the run", keys: ["Enter", "o"], when: (event) => event.key !== "Enter" || !isControl(event.target), run: () => runs[here] && go(`/runs/${encodeURIComponent(runs[here].run)}`) },
    { title: "Filter by text", keys: ["/"], run: () => text.current?.select() },
    { title: "Clear the filters", keys: ["x"], run: () => setQuery(Object.fromEntries(FILTERS.map((name) => [name, ""]))) },
  ]);
  const filters = FILTERS.filter((name) => chosen[name]).map((name) => `${name} ${chosen[name]}`);
  const workflows = [...new Set(runs.map((run) => run.workflow).filter(Boolean))];
  return (
    <div class="view runs-view">
      <div class="view-head"><h1>Runs</h1><span class="dim">{read.data ? `${plural(runs.length, "run")}${next ? ", more below" : ""}` : ""}</span></div>
      <Filters workflows={workflows} isRole={read.data?.found === null} textRef={(node) => (text.current = node)} />
      <Shown read={read}>
        {() => runs.length ? (
          <div class="panel-box">
            <VirtualList size={runs.length} height={ROW_HEIGHT} current={here} label="Runs" class="runs-list" row={(index, place) => <Row key={runs[index].run} run={runs[index]} isCurrent={index === here} place={place} />} />
            {next && (size < SHOWN_MAX ? <button type="button" class="more" onClick={() => setMore({ filter, size: size + PAGE })}>Show the next {PAGE}</button> : <p class="note">No more than {count(SHOWN_MAX)} runs are shown: filter {read.data?.found === null ? "" : "or order "}them to see others.</p>)}
          </div>
        ) : (
          <Empty>{filters.length ? `No run matches ${filters.join(", ")}${leftOut(read.data!) ? `: ${leftOut(read.data!)}` : ""}.` : <>This workspace has no runs. `hansard demo` and `hansard quickstart` record some.</>}</Empty>
        )}
      </Shown>
      {read.data && runs.length > 0 && <p class="dim small">{leftOut(read.data) ? `${leftOut(read.data)}. ` : ""}Times are in UTC{runs.some((run) => run.began?.clock === "occurred_at") ? "; an imported run's are those that its source claims" : ""}.</p>}
    </div>
  );
}
