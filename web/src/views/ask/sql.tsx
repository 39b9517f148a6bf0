// SQL over the tables: an editor with completion from the schema, saved queries, a table and a chart.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { query, setQuery } from "../../app/place";
import { asProblem, useRead, useSource } from "../../app/reads";
import { Problem, type Source } from "../../app/source";
import { store, stored } from "../../app/theme";
import { AsOf, Empty, Failed, Rec, Select, Waiting } from "../../ui/pieces";
import { VirtualList } from "../../ui/list";
import { grouped, parsed, plural, preview, printable } from "../../ui/text";
import { Chart, isNumber } from "./chart";
import { editor, type ColumnFacts, type Editor } from "./editor";
import { Page, Table } from "./parts";

interface Answer { columns: string[]; rows: unknown[][]; position: number | null; cut: string | null }

const EXAMPLES: [string, string][] = [
  ["Runs by workflow and status", "SELECT workflow, status, count(*) AS runs\nFROM runs\nGROUP BY ALL\nORDER BY runs DESC"],
  ["Slowest tools", "SELECT tool, count(*) AS calls, round(avg(duration_ms), 1) AS mean_ms, max(duration_ms) AS most_ms\nFROM steps\nWHERE duration_ms IS NOT NULL\nGROUP BY tool\nORDER BY mean_ms DESC"],
  ["Failed calls", "SELECT run, agent, step, tool, error_type, error\nFROM steps\nWHERE status = 'failed'\nORDER BY requested_position DESC"],
  ["Decisions close to their threshold", "FROM threshold_flips(0.05)"],
  ["Events by hour", "SELECT date_trunc('hour', happened_at) AS hour, count(*) AS events\nFROM events\nGROUP BY ALL\nORDER BY hour"],
];
const SCHEMA = "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() WHERE NOT internal ORDER BY ALL";
const KEPT = "hansard-queries";
const ROW = 28;

async function ask(source: Source, text: string, signal?: AbortSignal): Promise<Answer> {
  const { data, position } = await source.get<any>("/sql", { statement: text }, signal);
  return { columns: data.columns, rows: data.rows, position: data.position ?? position, cut: data.cut ?? null };
}

export default function SqlView() {
  const source = useSource();
  const host = useRef<HTMLDivElement>(null);
  const made = useRef<Editor | null>(null);
  const under = useRef<AbortController | null>(null);
  const [state, setState] = useState<{ answer: Answer | null; problem: Problem | null; busy: boolean; ms: number }>({ answer: null, problem: null, busy: false, ms: 0 });
  const schema = useRead<{ rows: unknown[][] }>("/sql", { statement: SCHEMA });
  const tables = useMemo(() => {
    const facts = (schema.data?.rows ?? []).map(([table, column, type, comment]) => ({ table, column, type, comment }) as ColumnFacts);
    return grouped(facts, (each) => each.table);
  }, [schema.data]);

  const run = async () => {
    const text = made.current?.text() ?? "";
    if (!text.trim()) return;
    under.current?.abort();
    const control = (under.current = new AbortController());
    const begun = performance.now();
    setQuery({ q: text });
    setState((now) => ({ ...now, problem: null, busy: true }));
    try {
      const answer = await ask(source, text, control.signal);
      setState({ answer, problem: null, busy: false, ms: performance.now() - begun });
    } catch (error) {
      if (!control.signal.aborted) setState({ answer: null, problem: asProblem(error), busy: false, ms: 0 });
      else if (under.current === control) setState((now) => ({ ...now, busy: false }));
    }
  };
  const newest = useRef(run);
  newest.current = run;

  useEffect(() => {
    const text = query.value.q ?? "";
    made.current = editor(host.current!, text, () => void newest.current());
    if (text) void newest.current();
    return () => {
      under.current?.abort();
      made.current?.close();
    };
  }, [source]);
  useEffect(() => made.current?.complete(tables), [tables]);

  const choose = (text: string) => {
    made.current?.set(text);
    void run();
  };
  const isByLines = state.problem?.detail.includes("\n"); // the place of a mistake is marked in the line below it
  return (
    <Page title="SQL" wide heading="SQL" note="One statement that reads. It runs in a process of its own, for at most 10 s and 10,000 rows, as of the newest position. Ctrl+Enter runs it, Ctrl+Space completes.">
      <div class="sql-top">
        <div class="sql-left">
          <div ref={host} class="editor" />
          <div class="ask-bar">
            <button type="button" class="primary" onClick={() => void run()}>Run</button>
            {state.busy && <button type="button" onClick={() => under.current?.abort()}>Cancel</button>}
            <Queries text={() => made.current?.text() ?? ""} choose={choose} />
          </div>
        </div>
        {schema.problem ? <Failed problem={schema.problem} again={schema.reload} /> : <Schema tables={tables} choose={(table) => choose(`FROM ${table}`)} />}
      </div>
      {state.busy && !state.answer && <Waiting what="Running" />}
      {state.problem && <Failed problem={isByLines ? new Problem(state.problem.status, state.problem.title, "", state.problem.remedy) : state.problem} />}
      {isByLines && <pre class="whole" tabIndex={0} aria-label="the message by lines">{printable(state.problem!.detail)}</pre>}
      {state.answer && <Result answer={state.answer} ms={state.ms} />}
    </Page>
  );
}

// Queries of this browser, by name, and examples.
function Queries({ text, choose }: { text: () => string; choose: (text: string) => void }) {
  // None where what is stored is damaged.
  const [kept, setKept] = useState(() => ([parsed(stored(KEPT) ?? "{}")].find((saved) => typeof saved === "object") ?? {}) as Record<string, string>);
  const [name, setName] = useState("");
  const write = (next: Record<string, string>) => {
    setKept(next);
    store(KEPT, JSON.stringify(next));
  };
  return (
    <>
      <label class="field inline"><span>Query</span>
        <select value="" onChange={(event) => { const [from, key] = event.currentTarget.value.split("\n", 2); event.currentTarget.value = ""; choose(from === "saved" ? kept[key] : EXAMPLES.find(([title]) => title === key)![1]); }}>
          <option value="" disabled>choose one</option>
          {Object.keys(kept).length > 0 && <optgroup label="Saved in this browser">{Object.keys(kept).map((key) => <option key={key} value={`saved\n${key}`}>{key}</option>)}</optgroup>}
          <optgroup label="Examples">{EXAMPLES.map(([title]) => <option key={title} value={`example\n${title}`}>{title}</option>)}</optgroup>
        </select>
      </label>
      <label class="field inline"><span>Save as</span><input value={name} onInput={(event) => setName(event.currentTarget.value)} placeholder="a name, in this browser" /></label>
      <button type="button" disabled={!name.trim()} onClick={() => { write({ ...kept, [name.trim()]: text() }); setName(""); }}>Save</button>
      {name.trim() in kept && <button type="button" onClick={() => { const { [name.trim()]: _, ...rest } = kept; write(rest); setName(""); }}>Remove</button>}
    </>
  );
}

function Schema({ tables, choose }: { tables: Map<string, ColumnFacts[]>; choose: (table: string) => void }) {
  const [part, setPart] = useState("");
  const names = [...tables.keys()].filter((name) => name.includes(part.toLowerCase()));
  return (
    <details class="schema card" open={matchMedia("(min-width: 900px)").matches}>
      <summary>Tables <span class="dim">{tables.size || ""}</span></summary>
      <input type="search" aria-label="Filter the tables" placeholder="filter" value={part} onInput={(event) => setPart(event.currentTarget.value)} />
      <ul class="plain" tabIndex={0} aria-label="Tables and views">
        {names.map((name) => (
          <li key={name}>
            <details>
              <summary class="mono">{name}</summary>
              <button type="button" class="link" onClick={() => choose(name)}>Show the rows</button>
              <ul class="plain">{tables.get(name)!.map((each) => <li key={each.column} title={each.comment ?? undefined}><span class="mono">{each.column}</span> <span class="dim small">{each.type.toLowerCase().slice(0, 30)}</span></li>)}</ul>
            </details>
          </li>
        ))}
      </ul>
      {tables.size > 0 && !names.length && <p class="note">No table has “{part}” in its name.</p>}
    </details>
  );
}

function Result({ answer, ms }: { answer: Answer; ms: number }) {
  const source = useSource();
  const { columns: names, rows } = answer;
  const numeric = names.map((_, at) => rows.some((row) => isNumber(row[at])) && rows.every((row) => row[at] === null || isNumber(row[at])));
  const numbers = names.filter((_, at) => numeric[at]).map((each): [string, string] => [each, each]);
  const isChart = query.value.view === "chart";
  const x = Math.max(0, names.indexOf(query.value.x ?? ""));
  const y = names.indexOf(query.value.y ?? "");
  const ys = y >= 0 ? [y] : numeric.flatMap((is, at) => (is && at !== x ? [at] : []));
  if (!rows.length) return <><Empty>The answer has no rows.</Empty><AsOf position={answer.position} /></>;
  return (
    <section>
      <div class="ask-bar">
        <strong role="status">{plural(rows.length, "row")}</strong>
        {answer.cut && <span class="bad-text">{`The answer was cut at the limit of ${answer.cut}: CSV and NDJSON have all rows.`}</span>}
        <span class="dim">{`${Math.round(ms).toLocaleString("en-US")} ms until shown`}</span>
        <button type="button" aria-pressed={isChart} onClick={() => setQuery({ view: isChart ? "" : "chart" })}>{isChart ? "Table" : "Chart"}</button>
        {["csv", "ndjson"].map((format) => {
          const href = source.link("/sql", { statement: query.value.q, format });
          return href && <a key={format} href={href} download={`answer.${format}`}>{format.toUpperCase()}</a>;
        })}
        {isChart && (
          <>
            <Select class="field inline" label="over" options={names.map((each) => [each, each])} value={names[x]} set={(name) => setQuery({ x: name })} />
            <Select class="field inline" label="of" options={[["", "every number"], ...numbers]} value={y >= 0 ? names[y] : ""} set={(name) => setQuery({ y: name })} />
          </>
        )}
      </div>
      {isChart ? (ys.length ? <div class="sql-chart"><Chart columns={names} rows={rows} x={x} ys={ys} /></div> : <Empty>No column beside “{names[x]}” holds numbers: choose another, or show the table.</Empty>) : rows.length > 200 ? <Many names={names} rows={rows} /> : (
        <div class="answer"><Table label="answer" rows={rows} columns={names.map((name, at) => ({ name, right: numeric[at], cell: (row: unknown[]) => (row[at] === null ? <span class="dim">null</span> : <Rec text={typeof row[at] === "string" ? row[at] : preview(row[at], 300)} />) }))} /></div>
      )}
      <AsOf position={answer.position} />
    </section>
  );
}

// Rows of which only those in sight exist; columns are equally wide.
function Many({ names, rows }: { names: string[]; rows: unknown[][] }) {
  const style = { gridTemplateColumns: `repeat(${names.length}, minmax(110px, 1fr))`, minWidth: `${names.length * 110}px` };
  return (
    <div class="scroll many" role="table" aria-label="answer" aria-rowcount={rows.length}>
      <div class="many-row many-head" role="row" style={style}>{names.map((name) => <span key={name} role="columnheader">{name}</span>)}</div>
      <VirtualList size={rows.length} height={ROW} label="rows" role="rowgroup" row={(index, { style: at }) => <div class="many-row" role="row" style={{ ...style, ...at }}>{names.map((name, column) => <span key={name} role="cell"><Rec text={preview(rows[index][column], 80)} /></span>)}</div>} />
    </div>
  );
}
