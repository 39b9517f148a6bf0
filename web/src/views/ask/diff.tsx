// Two runs aligned: in which respects they compare, the first difference, each move beside its counterpart.

import { useEffect, useMemo, useState } from "preact/hooks";
import { address, go, query, setQuery } from "../../app/place";
import { useCommands } from "../../app/keys";
import { useRead, useReload, useStream } from "../../app/reads";
import { Empty, Facts, Pill, Rec, Shown } from "../../ui/pieces";
import { VirtualList, type Place } from "../../ui/list";
import { assignment, count, duration, plural, preview, short } from "../../ui/text";
import type { Assigned } from "../../run/answers";
import type { ViewProps } from "..";
import { Changes, EventLink, Page, type Lines, ofKind, RunLink, runPath, Table, Value } from "./parts";

interface At {
  place: string; recorded_in: string | null; version: number; position: number;
  step?: number; tool?: string; arguments?: any; status?: string; in_doubt?: boolean; result?: any; error?: any; duration_ms?: number | null; usage?: Record<string, number>; withheld?: string | null; would?: string | null;
  decision?: string; selected?: string; alternatives?: any[]; because?: string | null; threshold?: number | null; confidence?: number | null;
  role?: string; content?: any; fields?: any;
}
interface Move { agent_a: string | null; agent_b: string | null; what: string; shared: boolean; a: At | null; b: At | null }
interface Side { side: string; run: string; assigned: Assigned | null; forked_from: string | null; edits: string[]; status: string; error: string | null; scores: Record<string, number>; steps: number; decisions: number; attempts: number; duration_ms: number | null; usage: Record<string, number>; own_usage: Record<string, number> }

const WHAT: Record<string, string> = { same: "same", result: "another result", arguments: "other arguments", text: "another text", moved: "at another place", only_a: "only in a", only_b: "only in b" };
const SIGN: Record<string, string> = { same: "=", result: "≠", arguments: "≠", text: "≠", moved: "↕", only_a: "−", only_b: "+" };
const RELOAD_MS = 1_000; // after an event of the second run: further ones are gathered
const ROW = 46;

// Choose two runs.
export function PickRuns() {
  const runs = useRead<{ runs: any[] }>("/runs", { limit: 100 });
  const [a, setA] = useState(query.value.a ?? "");
  const [b, setB] = useState(query.value.b ?? "");
  const give = (event: Event) => {
    event.preventDefault();
    if (a.trim() && b.trim()) go(`${runPath(a.trim())}/diff/${encodeURIComponent(b.trim())}`);
  };
  return (
    <Page title="Compare two runs" heading="Compare two runs" note="A run is named by its id, or by a unique beginning of it. Forks are compared with their parents from a run’s own page.">
      <form class="filters" onSubmit={give}>
        <label class="field grow"><span>One run</span><input list="runs-known" value={a} onInput={(event) => setA(event.currentTarget.value)} required /></label>
        <label class="field grow"><span>The other run</span><input list="runs-known" value={b} onInput={(event) => setB(event.currentTarget.value)} required /></label>
        <button type="submit" class="primary">Compare</button>
        <datalist id="runs-known">{runs.data?.runs.map((run) => <option key={run.run} value={run.run}>{run.workflow} {run.status}</option>)}</datalist>
      </form>
      <h2>Forks</h2>
      <Shown read={runs}>{(data) => <Forks runs={data.runs} />}</Shown>
    </Page>
  );
}

function Forks({ runs }: { runs: any[] }) {
  const forks = runs.filter((run) => run.forked_from);
  return <Table label="forks" rows={forks} rowKey={(run) => run.run} empty={`None of the ${plural(runs.length, "newest run")} is a fork.`} columns={[
    { name: "fork", cell: (run) => <RunLink run={run.run} /> },
    { name: "workflow", cell: (run) => <Rec text={run.workflow} /> },
    { name: "status", cell: (run) => <Pill status={run.status} /> },
    { name: "of", cell: (run) => <RunLink run={run.forked_from} /> },
    { name: "", cell: (run) => <a href={address(`${runPath(run.forked_from)}/diff/${encodeURIComponent(run.run)}`)}>compare</a> },
  ]} />;
}

export default function DiffView({ params }: ViewProps) {
  const { run, other } = params;
  const path = (a: string, b: string): string => `${runPath(a)}/diff/${encodeURIComponent(b)}`;
  const read = useRead<Lines>(path(run, other));
  useEffect(() => { // `last` is another run tomorrow: the address names the runs that were compared
    const [a, b] = ofKind(read.data?.lines ?? [], "run") as Side[];
    if (b && (a.run !== run || b.run !== other)) go(path(a.run, b.run), query.peek(), { replace: true });
  }, [read.data]);
  const reload = useReload(read, RELOAD_MS);
  useStream(`${runPath(other)}/live`, {}, { event: (name) => name !== "open" && reload(), state: () => undefined }); // a fork that a worker runs
  return (
    <Page title={`${short(run)} and ${short(other)}`} wide heading="Two runs aligned" note={<>a: <RunLink run={run} /> · b: <RunLink run={other} /> · <a href={address(path(other, run))}>exchange</a></>}>
      <Shown read={read}>{(data) => <Aligned lines={data.lines} />}</Shown>
    </Page>
  );
}

function Aligned({ lines }: { lines: any[] }) {
  const [a, b] = useMemo(() => ofKind(lines, "run") as Side[], [lines]);
  const moves = useMemo(() => ofKind(lines, "move") as Move[], [lines]);
  const verdict = ofKind(lines, "comparability")[0];
  const end = ofKind(lines, "compared")[0];
  const every = query.value.all === "true";
  const shown = useMemo(() => (every ? moves : moves.filter((move) => move.what !== "same")), [moves, every]);
  const first = end?.parts ? moves.findIndex((move) => samePlace(move, end.parts)) : -1;
  const chosen = query.value.move === undefined ? first : Number(query.value.move);
  const current = shown.indexOf(moves[chosen]);
  const choose = (index: number) => shown[index] && setQuery({ move: moves.indexOf(shown[index]) });
  useCommands([
    { title: "The next move", keys: ["j", "ArrowDown"], run: () => choose(Math.min(shown.length - 1, current + 1)), group: "Two runs" },
    { title: "The move before", keys: ["k", "ArrowUp"], run: () => choose(Math.max(0, current - 1)), group: "Two runs" },
    { title: "The first difference", keys: ["d"], run: () => first >= 0 && setQuery({ move: first }), group: "Two runs" },
  ]);
  return (
    <>
      <Sides a={a} b={b} />
      {verdict && <Respects verdict={verdict} />}
      <div class="ask-bar">
        <strong>{first < 0 ? (end?.equal ? "The runs are equal." : "Their moves are equal; they ended otherwise.") : <>First difference: <button type="button" class="link" onClick={() => setQuery({ move: first })}><Rec text={nameOf(moves[first])} /></button></>}</strong>
        <span class="dim">{counts(end?.counts)}{end?.shared ? `; ${plural(end.shared, "move")} from before the fork, on record once for both` : ""}</span>
        <label class="tick"><input type="checkbox" checked={every} onChange={(event) => setQuery({ all: event.currentTarget.checked ? "true" : "" })} /> Equal moves too</label>
      </div>
      {!shown.length ? <Empty>{moves.length ? "Every move is the same: list equal moves too to see them." : "Neither run has a call, a decision or a message."}</Empty> : (
        <div class="split" style={{ "--rows": `${ROW * shown.length + 4}px` }}>
          <VirtualList size={shown.length} height={ROW} label="moves of both runs" current={current} class="aligned" onClick={(event) => {
            const at = (event.target as Element).closest<HTMLElement>("[data-at]");
            if (at) choose(Number(at.dataset.at));
          }} row={(index, place) => <Row place={place} move={shown[index]} index={index} isCurrent={index === current} isFirst={moves[first] === shown[index]} />} />
          <div class="detail" aria-live="polite">{moves[chosen] ? <Detail move={moves[chosen]} /> : <Empty>Choose a move.</Empty>}</div>
        </div>
      )}
    </>
  );
}

const samePlace = (move: Move, other: Move): boolean => move.agent_a === other.agent_a && move.agent_b === other.agent_b && move.a?.place === other.a?.place && move.b?.place === other.b?.place;
const counts = (by: Record<string, number> = {}): string => Object.entries(by).filter(([, number]) => number).map(([what, number]) => `${count(number)} ${WHAT[what]}`).join(", ");

function nameOf(move: Move): string {
  const at = move.a ?? move.b!;
  return at.tool ?? at.decision ?? (at.role ? `${at.role} message` : at.place);
}

function Sides({ a, b }: { a: Side; b: Side }) {
  const names = [...new Set([...Object.keys(a.usage), ...Object.keys(b.usage)])];
  const scores = [...new Set([...Object.keys(a.scores), ...Object.keys(b.scores)])];
  const rows: { name: string; a: string; b: string; change: string }[] = [
    { name: "trial", a: a.assigned ? assignment(a.assigned) : "", b: b.assigned ? assignment(b.assigned) : "", change: "" },
    { name: "status", a: a.status, b: b.status, change: a.status === b.status ? "" : "differs" },
    { name: "error", a: a.error ?? "", b: b.error ?? "", change: a.error === b.error ? "" : "differs" },
    ...scores.map((name) => numbers(`score ${name}`, a.scores[name], b.scores[name], count4)),
    numbers("calls", a.steps, b.steps, count),
    numbers("attempts", a.attempts, b.attempts, count),
    numbers("decisions", a.decisions, b.decisions, count),
    numbers("time", a.duration_ms, b.duration_ms, (ms) => duration(ms)),
    ...names.map((name) => numbers(name.replaceAll("_", " "), a.usage[name], b.usage[name], count4)),
  ].filter((row) => row.a || row.b);
  return (
    <>
      <Table label="outcome and costs" rows={rows} rowKey={(row) => row.name} columns={[
        { name: "", cell: (row) => row.name },
        ...(["a", "b"] as const).map((side) => ({ name: side, cell: (row: (typeof rows)[number]) => (row.name === "status" ? <Pill status={row[side]} /> : row.name === "error" || row.name === "trial" ? <Value value={row[side]} /> : <Rec text={row[side]} />), right: true })),
        { name: "b − a", cell: (row) => <Rec text={row.change} />, right: true },
      ]} />
      {[a, b].map((each) => each.forked_from && <p key={each.side} class="note">{each.side} is a fork of <RunLink run={each.forked_from} />{each.edits.length ? `, with other results of ${each.edits.join(", ")}` : ""}.</p>)}
    </>
  );
}

const count4 = (number: number): string => (Number.isInteger(number) ? count(number) : String(Number(number.toPrecision(4))));

function numbers(name: string, a: number | null | undefined, b: number | null | undefined, form: (number: number) => string) {
  const both = a !== null && a !== undefined && b !== null && b !== undefined;
  const change = both ? b - a : 0;
  const ratio = both && a ? ` (${change > 0 ? "+" : "−"}${Math.abs((100 * change) / a).toFixed(0)} %)` : "";
  return { name, a: a === null || a === undefined ? "" : form(a), b: b === null || b === undefined ? "" : form(b), change: change ? `${change > 0 ? "+" : "−"}${form(Math.abs(change))}${ratio}` : "" };
}

const VERDICTS: Record<string, string> = { comparable: "Only the moves can explain the difference.", differs: "Something beside the moves differs, and may explain the rest.", "nothing ran": "Nothing ran in the fork after its fork point." };

function Respects({ verdict }: { verdict: any }) {
  const kind = { comparable: "better", differs: "worse" }[verdict.verdict as string] ?? "open";
  return (
    <section class="card">
      <header><Pill status={kind} label={verdict.verdict} /> <strong>{VERDICTS[verdict.verdict as string] ?? "Not everything that matters is on record."}</strong></header>
      <Facts pairs={verdict.respects.map((each: any) => [each.name, `${each.sameness}: ${each.because}`])} />
    </section>
  );
}

function Row({ move, index, place, isCurrent, isFirst }: { move: Move; index: number; place: Place; isCurrent: boolean; isFirst: boolean }) {
  const cell = (at: At | null) => (at ? <><Rec text={summary(at)} class="mono" /><span class="dim small"><Rec text={at.place} /></span></> : <span class="dim">—</span>);
  return (
    <div {...place} data-at={index} role="listitem" aria-current={isCurrent ? "true" : undefined} class={`vrow pair-row ${move.what} ${isCurrent ? "current" : ""}`}>
      <span class="pair-side">{cell(move.a)}</span>
      <span class={`pair-sign ${move.what}`} title={WHAT[move.what]}>{SIGN[move.what] ?? "?"}<span class="unseen"> {WHAT[move.what]}</span>{isFirst && <span class="unseen">, the first difference</span>}</span>
      <span class="pair-side">{cell(move.b)}</span>
    </div>
  );
}

const statusOf = (at: At): string | undefined => (at.in_doubt && at.status !== "in_doubt" ? `${at.status}, in doubt` : at.status);

function summary(at: At): string {
  if (at.tool) return `${at.tool}(${preview(at.arguments, 60)}) → ${at.status === "completed" ? preview(at.result, 60) : statusOf(at)}`;
  if (at.decision !== undefined) return `${at.decision} ${at.selected}`;
  return `${at.role}: ${preview(at.content, 110)}`;
}

function Detail({ move }: { move: Move }) {
  const { a, b } = move;
  const both = a !== null && b !== null;
  const parts = (at: At) => (at.tool ? { arguments: at.arguments, result: at.result, status: statusOf(at), error: at.error } : at.decision !== undefined ? { selected: at.selected, alternatives: at.alternatives, threshold: at.threshold, confidence: at.confidence, because: at.because } : { content: at.content, fields: at.fields });
  return (
    <>
      <h2><Rec text={nameOf(move)} /> <span class="dim">{WHAT[move.what]}{move.shared ? ": one recorded event" : ""}</span></h2>
      {[["a", a, move.agent_a] as const, ["b", b, move.agent_b] as const].map(([side, at, agent]) => at && (
        <p key={side} class="dim">{side}: <Rec text={agent ?? ""} /> <EventLink run={at.recorded_in} at={String(at.position)}>{`${at.place} at position ${at.position}`}</EventLink>{at.duration_ms ? ` · ${duration(at.duration_ms)}` : ""}{at.withheld ? ` · withheld: ${at.withheld}` : ""}</p>
      ))}
      {both && move.what !== "same" ? <Changes a={parts(a)} b={parts(b)} /> : <Value value={parts((a ?? b)!)} open />}
    </>
  );
}
