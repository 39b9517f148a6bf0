// The slider and the lanes under it: one lane per agent, one mark per event, and hand-offs between lanes.

import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { setQuery } from "../app/place";
import { colors, isDark } from "../app/theme";
import { Rec } from "../ui/pieces";
import { count, duration, inLine, moment } from "../ui/text";
import { gapText, tickText, UNITS } from "./axis";
import { useEvents, useModel, type RunModel } from "./model";
import { BAD, KINDS, type Outline } from "./outline";
import { headline, VERSION, versionName } from "./words";

const LANES = 8; // further agents share the last lane
const LANE_HEIGHT = 11;
const THUMB = 15; // px width of the slider's thumb, whose middle is the point
const EDGES = 400; // hand-offs that are drawn; more would hide the marks
const REDRAW_MS = 250; // between drawings of a run that grows
const MARKS = [...KINDS, "bad"];
const MARK_HEIGHTS = [4, 5, 8, 9, 7, 6, 9]; // of LANE_HEIGHT: the kind of a mark is visible without its color

const lanesOf = (outline: Outline): number => Math.max(1, Math.min(LANES, outline.agents.length));
const laneOf = (outline: Outline, number: number): number => Math.min(outline.agent[number], LANES - 1);

// Place of an event, from 0 to 1.
function shareOf(model: RunModel, number: number): number {
  if (model.byTime.peek()) return model.axis.shares[number] ?? 1;
  return model.outline.size > 1 ? number / (model.outline.size - 1) : 0;
}

function draw(model: RunModel, canvas: HTMLCanvasElement): void {
  const { outline } = model;
  const lanes = lanesOf(outline);
  const [width, height] = [canvas.clientWidth, lanes * LANE_HEIGHT + 6];
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d")!;
  pen.scale(ratio, ratio);
  const color = colors(["line", "parents", "inset", "dim", ...MARKS.map((name) => `mark-${name}`)]);
  const span = Math.max(1, width - THUMB);
  const x = (number: number) => THUMB / 2 + shareOf(model, number) * span;
  const middle = (lane: number) => 3 + lane * LANE_HEIGHT + LANE_HEIGHT / 2;
  const cut = outline.inherited;
  if (cut && cut < outline.size) {
    pen.fillStyle = color.parents;
    pen.fillRect(0, 0, (x(cut - 1) + x(cut)) / 2, height);
  }
  if (model.byTime.peek()) drawGaps(pen, model, span, height, color);
  pen.fillStyle = color.line;
  for (let lane = 0; lane < lanes; lane++) pen.fillRect(THUMB / 2, middle(lane) - 0.5, span, 1);
  drawEdges(pen, outline, x, middle, color.dim);
  const columns = Math.ceil(width) + 1;
  const seen = new Int8Array(columns * lanes).fill(-1);
  const bad = outline.statuses.map((status) => BAD.has(status));
  const scale = outline.size > 1 ? span / (outline.size - 1) : 0;
  const isByTime = model.byTime.peek();
  for (let number = 0; number < outline.size; number++) {
    const column = Math.floor(isByTime ? x(number) : THUMB / 2 + number * scale);
    const at = laneOf(outline, number) * columns + column;
    const mark = bad[outline.status[number]] ? 6 : outline.kind[outline.item[number]];
    if (mark > seen[at]) seen[at] = mark;
  }
  const mark = isByTime ? 2 : Math.max(1, Math.min(6, (span / outline.size) * 0.6));
  for (let lane = 0; lane < lanes; lane++) {
    for (let column = 0; column < columns; column++) {
      const kind = seen[lane * columns + column];
      if (kind < 0) continue;
      pen.fillStyle = color[`mark-${MARKS[kind]}`];
      const tall = MARK_HEIGHTS[kind];
      const top = 3 + lane * LANE_HEIGHT + (LANE_HEIGHT - tall) / 2;
      if (MARKS[kind] === "bad") {
        pen.fillRect(column - mark / 2, top, mark, tall / 3);
        pen.fillRect(column - mark / 2, top + (2 * tall) / 3, mark, tall / 3);
      } else pen.fillRect(column - mark / 2, top, mark, tall);
    }
  }
}

// Hand-offs and messages between agents: a line from the sender's lane to the receiver's.
function drawEdges(pen: CanvasRenderingContext2D, outline: Outline, x: (number: number) => number, middle: (lane: number) => number, color: string): void {
  if (outline.to.size > EDGES) return;
  pen.strokeStyle = pen.fillStyle = color;
  pen.lineWidth = 1;
  for (const [number, name] of outline.to) {
    const receiver = outline.agentNamed(name);
    const [from, to] = [laneOf(outline, number), Math.min(receiver?.number ?? -1, LANES - 1)];
    if (to < 0 || from === to) continue;
    pen.beginPath();
    pen.moveTo(x(number), middle(from));
    pen.lineTo(x(number), middle(to));
    pen.stroke();
    pen.beginPath();
    pen.arc(x(number), middle(to), 2, 0, 2 * Math.PI);
    pen.fill();
  }
}

// Shortened gaps: hatched, between two lines.
function drawGaps(pen: CanvasRenderingContext2D, model: RunModel, span: number, height: number, color: Record<string, string>): void {
  for (const gap of model.axis.long) {
    const [from, to] = [gap.share, gap.end].map((share) => THUMB / 2 + share * span);
    pen.fillStyle = color.inset;
    pen.fillRect(from, 0, to - from, height);
    pen.strokeStyle = color.dim;
    pen.lineWidth = 1;
    pen.beginPath();
    for (let at = from + 3; at < to + height; at += 5) {
      pen.moveTo(Math.min(at, to), Math.max(0, at - to));
      pen.lineTo(Math.max(from, at - height), Math.min(height, at - from));
    }
    pen.stroke();
  }
}

function useWidth(of: RefObject<Element | null>): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const watch = new ResizeObserver(() => setWidth(of.current?.clientWidth ?? 0));
    watch.observe(of.current!);
    return () => watch.disconnect();
  }, []);
  return width;
}

function Lanes({ model }: { model: RunModel }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useWidth(canvas);
  const drawn = useRef({ at: 0, timer: 0 });
  const [version, isByTime, dark] = [model.version.value, model.byTime.value, isDark.value];
  useLayoutEffect(() => {
    const again = () => {
      drawn.current.at = performance.now();
      if (canvas.current) draw(model, canvas.current);
    };
    const wait = drawn.current.at + (model.isWhole.peek() ? REDRAW_MS / 5 : REDRAW_MS) - performance.now();
    clearTimeout(drawn.current.timer);
    if (wait <= 0 || version < 2) again();
    else drawn.current.timer = window.setTimeout(again, wait);
    return () => clearTimeout(drawn.current.timer);
  }, [version, isByTime, dark, width]);
  return <canvas ref={canvas} id="lanes" aria-hidden="true" />;
}

// Times along the time axis, and the lengths of its gaps.
function Axis({ model }: { model: RunModel }) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  void model.version.value;
  const { axis } = model;
  const { step, list } = axis.ticks(Math.max(1, (width || 800) - THUMB));
  const place = (share: number) => ({ left: `calc(${THUMB / 2}px + ${share} * (100% - ${THUMB}px))` });
  return (
    <div ref={box} id="axis" class="axis" aria-hidden="true">
      {list.map((tick, index) => <span key={tick.time} class={index ? "tick" : "tick first"} style={place(tick.share)}>{tickText(tick.time, list[index - 1]?.time ?? null, step)}</span>)}
      {axis.long.map((gap) => <span key={`gap ${gap.from}`} class="gap" style={place((gap.share + gap.end) / 2)}>{gapText(gap)}</span>)}
    </div>
  );
}

export function setAxis(model: RunModel, isByTime: boolean): void {
  model.byTime.value = isByTime && model.axis.isTimed;
  setQuery({ axis: model.byTime.value ? "time" : "" });
}

function Slider({ model }: { model: RunModel }) {
  const { outline } = model;
  const [point, isByTime] = [model.point.value, model.byTime.value];
  void model.version.value;
  const value = isByTime ? Math.round(model.axis.shares[point] * UNITS) : point;
  const onInput = (event: Event) => {
    const now = Number((event.currentTarget as HTMLInputElement).value);
    model.go(isByTime ? model.axis.nearest(now / UNITS) : now);
  };
  const [answer] = useEvents([model.at]);
  const claimed = answer && "occurred_at" in answer ? answer.occurred_at : null;
  const stated = outline.timeStated(point);
  const spoken = claimed ? `, occurred at ${inLine(claimed)}` : stated === null ? "" : `, ${moment(stated, true)}`;
  const version = answer && "version" in answer ? `, ${inLine(versionName(answer))}` : "";
  return (
    <input id="slider" type="range" min="0" max={isByTime ? UNITS : Math.max(0, outline.size - 1)} step="1" value={value} onInput={onInput} aria-label={`Point in the run, by ${isByTime ? "time" : "order"}`} aria-valuetext={`event ${point + 1} of ${outline.size}: ${inLine(headline(outline, point))}; position ${outline.address(point)}${version}${spoken}`} />
  );
}


// Description of the point.
function Where({ model }: { model: RunModel }) {
  const { outline } = model;
  const [point, isWhole] = [model.point.value, model.isWhole.value];
  void model.version.value;
  const here = outline.address(point);
  const [read] = useEvents([model.at]);
  const event = read && "stream" in read && read.address === here ? read : null;
  const isTimed = event ? event.time !== null : outline.timeStated(point) !== null;
  const since = (outline.time[point] - outline.time[firstTimed(outline)]) / 1000;
  const back = outline.backBy(point);
  const inside = event?.is_inside ?? outline.lastOfCommit(point) !== point;
  return (
    <p id="where">
      <strong class="mono">{outline.address(point)}</strong>
      {event && <span class="mono" title={VERSION}><Rec text={versionName(event)} /></span>}
      {isTimed && <time class="mono">{moment(outline.time[point])}</time>}
      {isTimed && isWhole && <span class="dim">+{duration(since).replace("<", "")}</span>}
      {isWhole && <span class="dim">event {count(point + 1)} of {count(outline.size)}</span>}
      {point < outline.inherited && <span class="chip parents">before the fork</span>}
      {event?.occurred_at && <span class="claim">occurred at <Rec text={event.occurred_at} />, says the source</span>}
      {event?.origin && <span class="claim">copied from <Rec text={`position ${event.origin.position} of log ${event.origin.log}, ${String(event.origin.at).slice(0, 19)}Z`} /></span>}
      {back > 0 && <span class="claim">its time is {duration(back / 1000)} earlier than that of the event before</span>}
      {inside && <span class="claim">inside a {outline.lastOfCommit(point) === point ? "transaction" : "commit"}, which is on record whole{model.source.now ? "" : ": state, board and tasks are those at its end"}</span>}
      {event?.quarantined && <span class="claim">ignored: <Rec text={event.quarantined} /></span>}
    </p>
  );
}

// The first event that was written live: an import has the log's time of the import.
function firstTimed(outline: Outline): number {
  for (let number = 0; outline.when.size && number < outline.size; number++) if (!outline.when.has(number)) return number;
  return 0;
}

export function Timeline() {
  const model = useModel();
  const { outline } = model;
  void model.version.value;
  const [point, isByTime] = [model.point.value, model.byTime.value];
  const lanes = lanesOf(outline);
  const names = outline.agents.map((agent) => agent.name);
  const shown = names.length > LANES ? [...names.slice(0, LANES - 1), `${names.length - LANES + 1} more`] : names;
  const isTimed = outline.when.size === 0 || model.axis.isTimed;
  const [read] = useEvents([model.at]);
  const whose = !outline.when.size ? "of the log" : read && "origin" in read && read.origin ? "of the log it was copied from" : "as the source says";
  useLayoutEffect(() => void (document.documentElement.dataset.axis = isByTime ? "time" : "order"), [isByTime]);
  const step = (event: MouseEvent, by: 1 | -1) => model.go(event.shiftKey ? model.commitEnd(point, by) : point + by);
  return (
    <section id="time" aria-label="Timeline" style={{ "--lanes": `${lanes * LANE_HEIGHT + 6}px` }}>
      <div class="over">
        <div id="names" class="names" aria-hidden="true">{shown.map((name) => <Rec key={name} text={name} />)}</div>
        <div class="lanes"><Lanes model={model} /><Slider model={model} /></div>
        {isByTime && <Axis model={model} />}
      </div>
      <div class="point">
        <div class="moves" role="group" aria-label="Move">
          <button id="first" type="button" aria-label="First event" title="First event (Home)" onClick={() => model.go(0)}>⇤</button>
          <button id="back" type="button" aria-label="Event before" title="Event before (←); Shift+← for the commit before" onClick={(event) => step(event, -1)}>←</button>
          <button id="on" type="button" aria-label="Next event" title="Next event (→); Shift+→ for the next commit" onClick={(event) => step(event, 1)}>→</button>
          <button id="last" type="button" aria-label="Last event" title="Last event (End)" onClick={() => model.go(outline.size - 1)}>⇥</button>
        </div>
        <div class="moves" role="group" aria-label="Axis">
          <button id="by-order" type="button" aria-pressed={!isByTime} title="Each event as wide as every other (t)" onClick={() => setAxis(model, false)}>Order</button>
          <button id="by-time" type="button" aria-pressed={isByTime} title={isTimed ? "Events at their times (t)" : "No event of this run has a time"} aria-keyshortcuts="t" disabled={!isTimed} onClick={() => setAxis(model, true)}>Time</button>
        </div>
        {model.source.kind === "http" && (
          <div class="moves"><button id="follow" type="button" aria-pressed={model.follows.value} title="Stay at the newest event (f)" onClick={() => follow(model)}>Follow</button></div>
        )}
        <Where model={model} />
      </div>
      {isByTime && <p id="axis-note" class="dim">{model.axis.describe(whose)}</p>}
    </section>
  );
}

export function follow(model: RunModel): void {
  model.follows.value = !model.follows.value;
  if (model.follows.value) model.go(model.outline.size - 1, "", true);
}
