// Charts by uPlot: lines over a number or a time, bars over texts. The table beside each has its numbers.

import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import { colors, isDark } from "../../app/theme";
import { inLine, moment } from "../../ui/text";

const BARS_MAX = 40;
const BAR_HEIGHT = 24;
const FONT = "12px system-ui, sans-serif";
const LETTER = 7; // px of a letter of the names, on average

export const isNumber = (value: unknown): value is number => typeof value === "number" && Number.isFinite(value);
const millis = (value: unknown): number => (typeof value === "string" && /^\d{4}-\d\d-\d\d/.test(value) ? Date.parse(/[TZ]/.test(value) ? value + (/(Z|[+-]\d\d:\d\d)$/.test(value) ? "" : "Z") : `${value.replace(" ", "T")}Z`) : NaN);

const short = (value: number): string => (Math.abs(value) >= 10_000 || Number.isInteger(value) ? value.toLocaleString("en-US", { maximumFractionDigits: 0, notation: Math.abs(value) >= 1e6 ? "compact" : "standard" }) : String(Number(value.toPrecision(4))));
const timeText = (at: number, step: number): string => (step >= 86_400_000 ? moment(at * 1000).slice(5, 10) : moment(at * 1000).slice(11, step >= 60_000 ? 16 : step >= 1_000 ? 19 : 23));

// Colors of an axis, and of a series by its number, as they are in this theme.
export const ink = (name: string): string => colors([name])[name];
export const axis = (options: uPlot.Axis): uPlot.Axis => ({ stroke: ink("dim"), font: FONT, grid: { stroke: ink("line"), width: 1 }, ticks: { show: false }, values: (_, at) => at.map((value) => (value === null ? "" : short(value))), ...options });
export const plain = (_: uPlot, value: number | null): string => (value === null ? "" : short(value));
// Counts have an axis of whole numbers.
const WHOLE = Array.from({ length: 15 }, (_, power) => [1, 2, 5].map((each) => each * 10 ** power)).flat();
const steps = ([, ...lists]: uPlot.AlignedData) => (lists.every((list) => Array.from(list).every((value) => value === null || Number.isInteger(value))) ? { incrs: WHOLE } : {});
const FROM_ZERO: uPlot.Range.Config = { min: { pad: 0.1, soft: 0, mode: 1 }, max: { pad: 0.1, soft: 0, mode: 1 } };

// A scale and an axis of names, one below the other.
export const namesScale = (names: string[]): uPlot.Scale => ({ time: false, ori: 1, dir: -1, range: [-0.6, names.length - 0.4] });
export const namesAxis = (names: string[]): uPlot.Axis => {
  const size = (plot: uPlot) => Math.min(0.42 * plot.width, 16 + LETTER * Math.max(...names.map((name) => name.length)));
  const cut = (name: string, most: number) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);
  return axis({ side: 3, size, grid: { show: false }, splits: () => names.map((_, index) => index), values: (plot, at) => at.map((index) => cut(names[index], Math.floor((size(plot) - 12) / LETTER))) });
};

export function Plot({ label, height, data, options }: { label: string; height: number; data: uPlot.AlignedData; options: () => Omit<uPlot.Options, "width" | "height"> }) {
  const host = useRef<HTMLDivElement>(null);
  const dark = isDark.value;
  useLayoutEffect(() => {
    const node = host.current!;
    const plot = new uPlot({ ...options(), width: node.clientWidth, height }, data, node);
    const watch = new ResizeObserver(() => node.clientWidth !== plot.width && plot.setSize({ width: node.clientWidth, height }));
    watch.observe(node);
    return () => {
      watch.disconnect();
      plot.destroy();
    };
  }, [data, height, dark]);
  return <div ref={host} class="plot" role="img" aria-label={label} />;
}

export function Chart({ columns, rows, x, ys }: { columns: string[]; rows: unknown[][]; x: number; ys: number[] }) {
  const values = rows.map((row) => row[x]).filter((value) => value !== null);
  const isTime = values.every((value) => !Number.isNaN(millis(value)));
  if (values.length && (isTime || values.every(isNumber))) return <Lines columns={columns} rows={rows} x={x} ys={ys} time={isTime} />;
  return <Bars columns={columns} rows={rows} x={x} y={ys[0]} />;
}

function Lines({ columns, rows, x, ys, time }: { columns: string[]; rows: unknown[][]; x: number; ys: number[]; time: boolean }) {
  const data = useMemo((): uPlot.AlignedData => {
    const points = rows.filter((row) => row[x] !== null).map((row) => ({ x: time ? millis(row[x]) : (row[x] as number), row })).sort((one, two) => one.x - two.x);
    return [points.map((point) => point.x), ...ys.map((y) => points.map(({ row }) => (isNumber(row[y]) ? row[y] : null)))];
  }, [rows, x, ys.join(), time]);
  const options = () => ({
    ms: 1 as const,
    tzDate: (at: number) => uPlot.tzDate(new Date(at), "Etc/UTC"),
    scales: { x: { time }, y: { range: FROM_ZERO } },
    axes: [axis({ size: 30, space: time ? 110 : 50, ...(time && { values: (_, at, __, ___, step) => at.map((value) => timeText(value, step)) }) }), axis({ size: 60, ...steps(data) })],
    series: [{ label: inLine(columns[x]), value: (plot: uPlot, value: number | null) => (time && value !== null ? moment(value * 1000) : plain(plot, value)) }, ...ys.map((y, index) => ({ label: inLine(columns[y]), stroke: ink(`agent-${index % 8}`), width: 2, value: plain }))],
  });
  return <Plot label={`${ys.map((y) => columns[y]).join(", ")} over ${columns[x]}${time ? ", in UTC" : ""}; the table has the numbers`} height={280} data={data} options={options} />;
}

function Bars({ columns, rows, x, y }: { columns: string[]; rows: unknown[][]; x: number; y: number }) {
  const shown = useMemo(() => rows.slice(0, BARS_MAX), [rows]);
  const names = shown.map((row) => inLine(String(row[x])));
  const data = useMemo((): uPlot.AlignedData => [shown.map((_, index) => index), shown.map((row) => (isNumber(row[y]) ? row[y] : null))], [shown, y]);
  const options = () => ({
    scales: { x: namesScale(names), y: { ori: 0 as const, range: FROM_ZERO } },
    axes: [namesAxis(names), axis({ side: 2, size: 30, space: 60, ...steps(data) })],
    cursor: { drag: { x: false, y: false } },
    series: [{ label: inLine(columns[x]), value: (_: uPlot, index: number | null) => (index === null ? "" : names[index]) }, { label: inLine(columns[y]), fill: ink("mark-step"), paths: uPlot.paths.bars!({ size: [0.7, 18] }), points: { show: false }, value: plain }],
  });
  return (
    <>
      <Plot label={`${columns[y]} by ${columns[x]}; the table has the numbers`} height={BAR_HEIGHT * shown.length + 46} data={data} options={options} />
      {rows.length > BARS_MAX && <p class="note">{`The first ${BARS_MAX} of ${rows.length.toLocaleString("en-US")} rows.`}</p>}
    </>
  );
}
