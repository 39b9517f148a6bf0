// A chart of an answer: lines over a number or a time, bars over texts.

import { useState } from "preact/hooks";
import { inLine, moment } from "../../ui/text";

const BARS_MAX = 40;
const POINTS_MAX = 2_000; // points of a line that are drawn, in even steps
const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [900, 280, 64, 12, 10, 26];

export const isNumber = (value: unknown): value is number => typeof value === "number" && Number.isFinite(value);
const millis = (value: unknown): number => (typeof value === "string" && /^\d{4}-\d\d-\d\d/.test(value) ? Date.parse(/[TZ]/.test(value) ? value + (/(Z|[+-]\d\d:\d\d)$/.test(value) ? "" : "Z") : `${value.replace(" ", "T")}Z`) : NaN);

export function Chart({ columns, rows, x, ys }: { columns: string[]; rows: unknown[][]; x: number; ys: number[] }) {
  const values = rows.map((row) => row[x]).filter((value) => value !== null);
  const isTime = values.every((value) => !Number.isNaN(millis(value)));
  if (values.length && (isTime || values.every(isNumber))) return <Lines columns={columns} rows={rows} x={x} ys={ys} time={isTime} />;
  return <Bars columns={columns} rows={rows} x={x} y={ys[0]} />;
}

// Round steps that divide a range into about so many parts.
function ticks(least: number, most: number, parts: number): number[] {
  const rough = (most - least) / parts || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough)!;
  const list: number[] = [];
  for (let at = Math.ceil(least / step) * step; at <= most + step / 1e6; at += step) list.push(Math.abs(at) < step / 1e6 ? 0 : at);
  return list;
}

const short = (value: number): string => (Math.abs(value) >= 10_000 || Number.isInteger(value) ? value.toLocaleString("en-US", { maximumFractionDigits: 0, notation: Math.abs(value) >= 1e6 ? "compact" : "standard" }) : String(Number(value.toPrecision(4))));

function timeText(at: number, range: number): string {
  const text = moment(at * 1000);
  return range > 3 * 86_400_000 ? text.slice(5, 10) : range > 180_000 ? text.slice(11, 16) : text.slice(11, 23);
}

function Lines({ columns, rows, x, ys, time }: { columns: string[]; rows: unknown[][]; x: number; ys: number[]; time: boolean }) {
  const [at, setAt] = useState<number | null>(null);
  const all = rows
    .filter((row) => row[x] !== null)
    .map((row) => ({ x: time ? millis(row[x]) : (row[x] as number), row }))
    .sort((one, two) => one.x - two.x);
  const step = Math.ceil(all.length / POINTS_MAX);
  const points = all.filter((_, index) => index % step === 0);
  const values = points.flatMap(({ row }) => ys.map((y) => row[y]).filter(isNumber));
  const [left, right] = [points[0].x, points.at(-1)!.x];
  const [least, most] = [Math.min(...values, 0), Math.max(...values, 0)];
  const toX = (value: number) => LEFT + ((WIDTH - LEFT - RIGHT) * (value - left)) / (right - left || 1);
  const toY = (value: number) => HEIGHT - BOTTOM - ((HEIGHT - TOP - BOTTOM) * (value - least)) / (most - least || 1);
  const onMove = (event: PointerEvent) => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    const to = left + (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT) * (right - left);
    setAt(points.reduce((best, point, index) => (Math.abs(point.x - to) < Math.abs(points[best].x - to) ? index : best), 0));
  };
  const text = (value: unknown) => (value === null ? "null" : isNumber(value) ? short(value) : inLine(String(value)));
  const read = at === null ? null : points[at];
  return (
    <figure class="lines">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`${ys.map((y) => columns[y]).join(", ")} over ${columns[x]}${time ? ", in UTC" : ""}; the table has the numbers`} onPointerMove={onMove} onPointerLeave={() => setAt(null)}>
        {ticks(least, most, 5).map((value) => <g key={`y${value}`}><line class="zero" x1={LEFT} x2={WIDTH - RIGHT} y1={toY(value)} y2={toY(value)} /><text x={LEFT - 6} y={toY(value) + 4} text-anchor="end">{short(value)}</text></g>)}
        {ticks(left, right, 7).map((value) => <text key={`x${value}`} x={toX(value)} y={HEIGHT - 8} text-anchor="middle">{time ? timeText(value, right - left) : short(value)}</text>)}
        {ys.map((y, index) => {
          const line = points.filter(({ row }) => isNumber(row[y])).map((point) => `${toX(point.x).toFixed(1)},${toY(point.row[y] as number).toFixed(1)}`);
          return <g key={y} class={`agent-${index % 8}`}><polyline class="curve" points={line.join(" ")} />{line.length === 1 && <circle class="dot" cx={line[0].split(",")[0]} cy={line[0].split(",")[1]} r="3" />}{read && isNumber(read.row[y]) && <circle class="dot" cx={toX(read.x)} cy={toY(read.row[y] as number)} r="4" />}</g>;
        })}
        {read && <line class="zero" x1={toX(read.x)} x2={toX(read.x)} y1={TOP} y2={HEIGHT - BOTTOM} />}
      </svg>
      <figcaption class="legend">
        <span>{columns[x]} <span class="mono">{read ? (time ? moment(read.x * 1000) : text(read.row[x])) : "–"}</span></span>
        {ys.map((y, index) => <span key={y} class={`who agent-${index % 8}`}>{columns[y]} <span class="mono">{read ? text(read.row[y]) : "–"}</span></span>)}
        {step > 1 && <span class="dim">{`every ${step}th of ${all.length.toLocaleString("en-US")} points is drawn`}</span>}
      </figcaption>
    </figure>
  );
}

function Bars({ columns, rows, x, y }: { columns: string[]; rows: unknown[][]; x: number; y: number }) {
  const shown = rows.slice(0, BARS_MAX);
  const most = Math.max(...shown.map((row) => (isNumber(row[y]) ? Math.abs(row[y]) : 0)), 0) || 1;
  return (
    <div role="img" aria-label={`${columns[y]} by ${columns[x]}; the table has the numbers`}>
      {shown.map((row, index) => (
        <div key={index} class="bar"><span class="bar-name"><bdi>{inLine(String(row[x]))}</bdi></span><span class="bar-room"><span class="bar-fill" style={{ width: `${(100 * Math.abs(Number(row[y]) || 0)) / most}%` }} /></span><span class="bar-value">{row[y] === null ? "" : String(row[y])}</span></div>
      ))}
      {rows.length > BARS_MAX && <p class="note">{`The first ${BARS_MAX} of ${rows.length.toLocaleString("en-US")} rows.`}</p>}
    </div>
  );
}
