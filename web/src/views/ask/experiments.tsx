// Experiments: the list, the plan and arms of one, and the comparison of its arms with pictures.

import { useMemo } from "preact/hooks";
import uPlot from "uplot";
import { address, query } from "../../app/place";
import { useRead } from "../../app/reads";
import { Facts, Rec, Shown, Time } from "../../ui/pieces";
import { inLine, plural } from "../../ui/text";
import type { ViewProps } from "..";
import { axis, Chart, ink, namesAxis, namesScale, plain, Plot } from "./chart";
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
      {about.data && <Shown read={report}>{(data) => <Compared data={data} question={about.data!.plan.question} />}</Shown>}
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

function Compared({ data, question }: { data: Lines; question: string | null }) {
  const rows = useMemo(() => ofKind(data.lines, "comparison").filter((row) => row.default && row.low !== null && row.slice === ""), [data]);
  const curves = useMemo(() => ofKind(data.lines, "curve").filter((row) => row.slice === ""), [data]);
  const plot = (kind: string, metric: string) =>
    kind === "intervals" ? <Intervals rows={rows.filter((row) => row.metric === metric)} metric={metric} />
      : kind === "curves" && <Curves rows={curves.filter((row) => row.metric === metric)} metric={metric} />;
  return (
    <Report blocks={data.blocks.slice(1).filter((block) => block.block !== "paragraph" || (block.text !== question && !/^(Sections below|What they did otherwise)/.test(block.text)))} plot={plot} />
  );
}

// Differences with their intervals: the inner one holds at one look, the outer one at any look.
function Intervals({ rows, metric }: { rows: any[]; metric: string }) {
  const [low, high] = ["low", "high"].map((end) => rows.map((row): number => row[`always_${end}`] ?? row[end]));
  const data = useMemo((): uPlot.AlignedData => [rows.map((_, index) => index), high, rows.map((row) => row.high), rows.map((row) => row.difference)], [rows]);
  if (!rows.length) return null;
  const names = rows.map((row) => inLine(`${row.arm} beside ${row.baseline}`));
  const ends = [Math.min(...low, 0), Math.max(...high, 0)];
  const bars = (lows: number[], highs: number[], size: number) => uPlot.paths.bars!({ size: [1, size], disp: { y0: { unit: 1, values: () => lows }, y1: { unit: 1, values: () => highs } } });
  const interval = (label: string, lows: number[], highs: number[], size: number): uPlot.Series => ({ label, fill: ink("mark-step"), paths: bars(lows, highs, size), points: { show: false }, value: (_, __, ___, index) => (index === null ? "" : `${number(lows[index])} .. ${number(highs[index])}`) });
  const options = () => ({
    scales: { x: namesScale(names), y: { ori: 0 as const, range: uPlot.rangeNum(ends[0], ends[1], 0.1, false) } },
    axes: [namesAxis(names), axis({ side: 2, size: 30, space: 60 })],
    cursor: { drag: { x: false, y: false } },
    series: [
      { label: "arms", value: (_: uPlot, index: number | null) => (index === null ? "" : names[index]) },
      interval("at any look", low, high, 2),
      interval("at one look", rows.map((row) => row.low), rows.map((row) => row.high), 7),
      { label: "difference", stroke: ink("text"), paths: () => null, points: { show: true, size: 11, fill: ink("text") }, value: plain },
    ],
  });
  const label = rows.map((row) => `${row.arm} beside ${row.baseline}: ${number(row.difference)}, ${number(row.low)} to ${number(row.high)}`).join("; ");
  return (
    <figure>
      <Plot label={`Differences by ${metric}: ${label}`} height={40 * rows.length + 46} data={data} options={options} />
      <figcaption class="dim small">Differences by <Rec text={metric} /> with their intervals: thick at one look, thin at any look; 0 is no difference.</figcaption>
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
