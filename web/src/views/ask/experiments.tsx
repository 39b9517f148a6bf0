// Experiments: the list, the plan and arms of one, and the comparison of its arms with pictures.

import { useMemo } from "preact/hooks";
import { address, query } from "../../app/place";
import { useRead } from "../../app/reads";
import { Facts, Pill, Rec, Shown, Time } from "../../ui/pieces";
import { plural } from "../../ui/text";
import type { ViewProps } from "..";
import { Chart } from "./chart";
import { Choice, Field, Page, type Lines, ofKind, Report, Table, Value } from "./parts";

const path = (name: string): string => `/experiments/${encodeURIComponent(name)}`;
const number = (value: number | null | undefined): string => (value === null || value === undefined ? "" : Math.abs(value) >= 1000 ? value.toLocaleString("en-US", { maximumFractionDigits: 0 }) : String(Number(value.toPrecision(4))));

export default function ExperimentsView() {
  const read = useRead<{ experiments: any[] }>("/experiments");
  return (
    <Page title="Experiments" heading="Experiments" note="A plan registered before the data, the runs that took their arm from it, and the comparison.">
      <Shown read={read}>{(data) => (
        <Table label="experiments" rows={data.experiments} rowKey={(row) => row.experiment} empty="No experiment is registered, and no run names one." columns={[
          { name: "experiment", cell: (row) => <a href={address(path(row.experiment))}><Rec text={row.experiment} /></a> },
          { name: "question", cell: (row) => row.question && <Rec text={row.question} /> },
          { name: "plan", cell: (row) => <><Rec text={row.standing} />{row.stopped ? ", stopped" : ""}</> },
          { name: "arms", cell: (row) => row.arms && <Rec text={row.arms.join(", ")} /> },
          { name: "metric", cell: (row) => <Rec text={row.metric} /> },
          { name: "runs", cell: (row) => row.runs.toLocaleString("en-US"), right: true },
          { name: "registered", cell: (row) => <Time iso={row.registered_at} /> },
        ]} />
      )}</Shown>
    </Page>
  );
}

export function ExperimentView({ params }: ViewProps) {
  const { name } = params;
  const { metric, baseline, by, missing } = query.value;
  const about = useRead<{ plan: any; arms: any[]; metrics: any[] }>(path(name));
  const report = useRead<Lines>("/report/compare", { experiment: name, metric, baseline, by, missing });
  return (
    <Page title={`Experiment ${name}`} heading={<>Experiment <Rec text={name} /></>} note={<a href={address("/experiments")}>All experiments</a>}>
      <Shown read={about}>{(data) => <Plan {...data} />}</Shown>
      {about.data && <div class="filters">
        <Field name="metric" label="Judge by" placeholder="the plan’s metrics" list={about.data?.metrics.map((each) => each.metric)} />
        <Field name="baseline" label="Compare with arm" placeholder="the first" list={about.data?.arms.map((each) => each.arm)} />
        <Field name="by" label="Also by label" placeholder="none" />
        <Choice name="missing" label="Trials without a value" options={[["", "as the plan says"], ["failure", "count as failures"], ["excluded", "are left out"], ["worst-case", "worst case"]]} />
      </div>}
      {about.data && <Shown read={report}>{(data) => <Compared data={data} />}</Shown>}
    </Page>
  );
}

function Plan({ plan, arms, metrics }: { plan: any; arms: any[]; metrics: any[] }) {
  return (
    <section class="card">
      {plan.question && <p><strong><Rec text={plan.question} /></strong></p>}
      <Facts pairs={[
        ["plan", plan.standing], ["registered", plan.registered_at && <><Time iso={plan.registered_at} /> by <Rec text={plan.registered_by} /></>], ["unit", plan.unit], ["cluster", plan.cluster],
        ["planned", plan.planned && plural(plan.planned, "task") + " per arm"], ["analysed", plan.stop], ["missing", plan.missing], ["stopped", plan.stopped_at && <><Time iso={plan.stopped_at} />: <Rec text={plan.stopped_because ?? ""} /></>], ["alpha", plan.alpha],
        ["metrics", metrics.map((each) => `${each.metric}${each.better ? ` (${each.better} is better)` : ""}`).join(", ")],
      ]} />
      <Table label="arms" rows={arms} rowKey={(row) => row.arm} columns={[
        { name: "arm", cell: (row) => <strong><Rec text={row.arm} /></strong> },
        { name: "prompt", cell: (row) => row.prompt && <a href={address(`/prompts/${encodeURIComponent(row.prompt.split("@")[0])}`)}><Rec text={row.prompt} /></a> },
        { name: "model", cell: (row) => row.model && <Rec text={row.model} /> },
        { name: "parameters", cell: (row) => row.parameters && Object.keys(row.parameters).length > 0 && <Value value={row.parameters} /> },
        { name: "tasks", cell: (row) => number(row.tasks), right: true },
        { name: "completed", cell: (row) => number(row.completed), right: true },
        { name: "failed", cell: (row) => number(row.failed), right: true },
        { name: "open", cell: (row) => number(row.open), right: true },
      ]} />
    </section>
  );
}

function Compared({ data }: { data: Lines }) {
  const rows = useMemo(() => ofKind(data.lines, "comparison").filter((row) => row.default && row.low !== null && row.slice === ""), [data]);
  const curves = useMemo(() => ofKind(data.lines, "curve").filter((row) => row.slice === ""), [data]);
  const plot = (kind: string, metric: string) =>
    kind === "intervals" ? <Intervals rows={rows.filter((row) => row.metric === metric)} metric={metric} />
      : kind === "curves" && <Curves rows={curves.filter((row) => row.metric === metric)} metric={metric} />;
  return (
    <>
      {rows.filter((row) => row.part === "judged").map((row) => (
        <p key={`${row.metric} ${row.arm} ${row.baseline}`} class="verdict-line"><Pill status={row.verdict === "better" || row.verdict === "worse" ? row.verdict : "open"} label={row.verdict} /> <span><Rec text={row.arm} /> beside <Rec text={row.baseline} /> by <Rec text={row.metric} />: {number(row.difference)} ({number(row.low)} .. {number(row.high)})</span></p>
      ))}
      <Report blocks={data.blocks.slice(1).filter((block) => block.block !== "paragraph" || !/^(Sections below|What they did otherwise)/.test(block.text))} plot={plot} />
    </>
  );
}

// Differences with their intervals: the inner one holds at one look, the outer one at any look.
function Intervals({ rows, metric }: { rows: any[]; metric: string }) {
  if (!rows.length) return null;
  const ends = rows.flatMap((row) => [row.low, row.high, row.always_low ?? row.low, row.always_high ?? row.high, 0]);
  const [least, most] = [Math.min(...ends), Math.max(...ends)];
  const x = (value: number) => 8 + (584 * (value - least)) / (most - least || 1);
  const height = 34 * rows.length + 24;
  const label = rows.map((row) => `${row.arm} beside ${row.baseline}: ${number(row.difference)}, ${number(row.low)} to ${number(row.high)}`).join("; ");
  return (
    <figure class="plot">
      <svg viewBox={`0 0 600 ${height}`} role="img" aria-label={`Differences by ${metric}: ${label}`}>
        <line class="zero" x1={x(0)} x2={x(0)} y1="4" y2={height - 18} />
        <text x={x(0)} y={height - 5} text-anchor="middle">no difference</text>
        {rows.map((row, index) => {
          const y = 26 + 34 * index;
          return (
            <g key={`${row.arm} ${row.baseline}`}>
              <text x="8" y={y - 10}>{`${row.arm} beside ${row.baseline}`}</text>
              {row.always_low !== null && <line class="outer" x1={x(row.always_low)} x2={x(row.always_high)} y1={y} y2={y} />}
              <line class="inner" x1={x(row.low)} x2={x(row.high)} y1={y} y2={y} />
              <circle class="point" cx={x(row.difference)} cy={y} r="5" />
            </g>
          );
        })}
      </svg>
      <figcaption class="dim">Differences by <Rec text={metric} /> with their intervals: thick at one look, thin at any look.</figcaption>
    </figure>
  );
}

// For each arm, the share of tasks of which any of k trials passes, and of which all do.
function Curves({ rows, metric }: { rows: any[]; metric: string }) {
  const arms = [...new Set(rows.map((row) => row.arm as string))];
  const trials = [...new Set(rows.map((row) => row.k as number))];
  if (trials.length < 2) return null;
  const of = (arm: string, k: number) => rows.find((row) => row.arm === arm && row.k === k);
  const table = trials.map((k) => [k, ...arms.flatMap((arm) => [of(arm, k)?.pass_at_k ?? null, of(arm, k)?.pass_hat_k ?? null])]);
  const columns = [`k trials, by ${metric}`, ...arms.flatMap((arm) => [`${arm}: any passes`, `${arm}: all pass`])];
  return <Chart columns={columns} rows={table} x={0} ys={columns.slice(1).map((_, index) => index + 1)} />;
}
