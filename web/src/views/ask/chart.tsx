// A chart of an answer: lines over a number or a time, bars over texts.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { colors, isDark } from "../../app/theme";
import { inLine } from "../../ui/text";

const BARS_MAX = 40;
const LINES = ["accent", "mark-decision", "mark-checkpoint", "mark-bad", "mark-message"];

export const isNumber = (value: unknown): value is number => typeof value === "number" && Number.isFinite(value);
const seconds = (value: unknown): number => (typeof value === "string" ? Date.parse(value.includes("T") || value.endsWith("Z") ? value : `${value.replace(" ", "T")}Z`) / 1000 : NaN);
const isTime = (value: unknown): boolean => typeof value === "string" && /^\d{4}-\d\d-\d\d/.test(value) && !Number.isNaN(seconds(value));

export function Chart({ columns, rows, x, ys }: { columns: string[]; rows: unknown[][]; x: number; ys: number[] }) {
  const values = rows.map((row) => row[x]).filter((value) => value !== null);
  if (values.length && values.every(isNumber)) return <Lines columns={columns} rows={rows} x={x} ys={ys} time={false} />;
  if (values.length && values.every(isTime)) return <Lines columns={columns} rows={rows} x={x} ys={ys} time />;
  return <Bars columns={columns} rows={rows} x={x} y={ys[0]} />;
}

function Lines({ columns, rows, x, ys, time }: { columns: string[]; rows: unknown[][]; x: number; ys: number[]; time: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const points = rows
      .filter((row) => row[x] !== null)
      .map((row) => [time ? seconds(row[x]) : (row[x] as number), ...ys.map((y) => (isNumber(row[y]) ? (row[y] as number) : null))] as (number | null)[])
      .sort((one, two) => one[0]! - two[0]!);
    const data = [0, ...ys.map((_, index) => index + 1)].map((at) => points.map((point) => point[at])) as uPlot.AlignedData;
    const color = colors(["dim", "line", ...LINES]);
    const axis = { stroke: color.dim, grid: { stroke: color.line, width: 1 }, ticks: { stroke: color.line, width: 1 } };
    const plot = new uPlot({
      width: Math.max(260, box.current!.clientWidth),
      height: 280,
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      scales: { x: { time } },
      axes: [axis, axis],
      series: [{ label: columns[x] }, ...ys.map((y, index) => ({ label: columns[y], stroke: color[LINES[index % LINES.length]], width: 2, points: { show: points.length < 200 } }))],
    }, data, box.current!);
    const size = new ResizeObserver(() => plot.setSize({ width: Math.max(260, box.current!.clientWidth), height: 280 }));
    size.observe(box.current!);
    return () => {
      size.disconnect();
      plot.destroy();
    };
  }, [rows, x, ys.join(), isDark.value]);
  return <div ref={box} role="img" aria-label={`${ys.map((y) => columns[y]).join(", ")} over ${columns[x]}${time ? ", in UTC" : ""}; the table has the numbers`} />;
}

function Bars({ columns, rows, x, y }: { columns: string[]; rows: unknown[][]; x: number; y: number }) {
  const shown = rows.slice(0, BARS_MAX);
  const most = Math.max(...shown.map((row) => (isNumber(row[y]) ? Math.abs(row[y] as number) : 0)), 0) || 1;
  return (
    <div role="img" aria-label={`${columns[y]} by ${columns[x]}; the table has the numbers`}>
      {shown.map((row, index) => (
        <div key={index} class="bar"><span class="bar-name"><bdi>{inLine(String(row[x]))}</bdi></span><span class="bar-room"><span class="bar-fill" style={{ width: `${(100 * Math.abs(Number(row[y]) || 0)) / most}%` }} /></span><span class="bar-value">{row[y] === null ? "" : String(row[y])}</span></div>
      ))}
      {rows.length > BARS_MAX && <p class="note">{`The first ${BARS_MAX} of ${rows.length.toLocaleString("en-US")} rows.`}</p>}
    </div>
  );
}
