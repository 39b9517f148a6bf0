// The trace: nested steps with branches, attempts and times; facts at the place they were recorded.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { asProblem } from "../app/reads";
import { VirtualList, type Place } from "../ui/list";
import { Empty, CallPill, Rec, Who } from "../ui/pieces";
import { duration, firsts, moment } from "../ui/text";
import { SETTLE_MS, useModel, type RunModel } from "./model";
import { KINDS, type Kind, type Outline } from "./outline";
import { gistOf, GLYPHS, titleOf } from "./words";

const ROW_HEIGHT = 30; // px, as in the style
const SHOWN: [Kind, string][] = [["step", "Steps"], ["message", "Messages"], ["decision", "Decisions"], ["checkpoint", "Checkpoints"], ["run", "Run"], ["other", "Other"]];

// The items to show: of the selected kinds, not in a closed step, not hidden as later.
function chosen(outline: Outline, kinds: Set<Kind>, collapsed: Set<number>, most: number): Int32Array {
  const out = new Int32Array(outline.items);
  const isShown = KINDS.map((kind) => kinds.has(kind));
  let [size, closed] = [0, Infinity]; // items deeper than this are inside a closed step
  for (const item of outline.order) {
    if (outline.depth[item] <= closed) closed = Infinity;
    if (closed !== Infinity) continue;
    if (collapsed.size && collapsed.has(item)) closed = outline.depth[item];
    if (isShown[outline.kind[item]] && outline.first[item] <= most) out[size++] = item;
  }
  return out.subarray(0, size);
}

// The row of an item, or of the nearest shown one before it; -1 if there is none.
function rowOf(outline: Outline, shown: Int32Array, item: number): number {
  const { rank } = outline;
  return firsts(shown.length, (place) => rank[shown[place]] <= rank[item]) - 1;
}

function When({ outline, number, start }: { outline: Outline; number: number; start: number | null }) {
  const stated = outline.when.get(number);
  if (stated === undefined && start === null) return <span class="when">{moment(outline.time[number]).slice(11, 19)}</span>;
  if (stated === undefined) return <span class="when">+{duration((outline.time[number] - start!) / 1000).replace("<", "")}</span>;
  if (stated === null) return <span class="when" />;
  return <span class="when claim" title="as its source claims">{moment(stated).slice(11, 19)}</span>;
}

function StepMarks({ outline, item, point }: { outline: Outline; item: number; point: number }) {
  let [tries, settled] = [0, -1];
  let took: number | undefined;
  for (let at = outline.first[item]; at >= 0 && at <= point; at = outline.next[at]) {
    const type = outline.typeName(at);
    if (type === "step.attempted") tries++;
    else if (type === "step.settled") settled = at;
    took = outline.took.get(at) ?? took;
  }
  return (
    <>
      {settled >= 0 && <span class="chip">settled by <Rec text={(outline.texts[settled] ?? "").split("  ")[0]} /></span>}
      {tries > 0 && <span class="chip">attempt {tries + 1}</span>}
      {took ? <span class="took">{duration(took)}</span> : null}
      <CallPill status={outline.statusAt(item, point)} />
    </>
  );
}

function Row({ model, item, isCurrent, isClosed, place, start }: { model: RunModel; item: number; isCurrent: boolean; isClosed: boolean; place: Place; start: number | null }) {
  const { outline } = model;
  const point = model.point.value;
  const [first, kind] = [outline.first[item], outline.kindOfItem(item)];
  const isLater = first > point;
  const hasChild = outline.hasChild[item] === 1;
  const branch = outline.branch.get(item);
  const { "aria-setsize": _size, "aria-posinset": _place, style } = place;
  const kinds = ["row", kind, isLater && "later", isCurrent && "current", first < outline.inherited && "parents"].filter(Boolean).join(" ");
  return (
    <div class={kinds} role="treeitem" id={`row-${item}`} aria-level={outline.depth[item] + 1} aria-selected={isCurrent} aria-expanded={hasChild ? !isClosed : undefined} data-item={item} style={{ ...style, "--depth": Math.min(outline.depth[item], 12) }}>
      <span class="caret" aria-hidden="true">{hasChild ? (isClosed ? "▸" : "▾") : ""}</span>
      {outline.agents.length > 2 && outline.isAgents(first) && <Who name={outline.agentOf(first).name} number={outline.agent[first]} />}
      <span class="glyph" aria-hidden="true">{GLYPHS[kind]}</span>
      {branch?.length ? <span class="chip" title="branch">∥ <Rec text={branch.at(-1)} /></span> : null}
      <Rec text={titleOf(outline, item)} class="name" />
      <span class="gist">{isLater ? "" : <Rec text={gistOf(outline, item)} />}</span>
      {isLater ? <span class="unseen">not yet</span> : kind === "step" ? <StepMarks outline={outline} item={item} point={point} /> : null}
      <When outline={outline} number={first} start={start} />
    </div>
  );
}

export function Trace({ openEvent }: { openEvent: (byKey?: boolean) => void }) {
  const model = useModel();
  const { outline } = model;
  const [version, point] = [model.version.value, model.point.value];
  const [kinds, setKinds] = useState(() => new Set<Kind>(SHOWN.map(([kind]) => kind).filter((kind) => kind !== "other")));
  const [hideLater, setHideLater] = useState(false);
  const collapsed = useRef(new Set<number>());
  const [folds, setFolds] = useState(0);
  const most = hideLater ? point : Infinity;
  const shown = useMemo(() => chosen(outline, kinds, collapsed.current, most), [version, kinds, most, folds]);
  const current = rowOf(outline, shown, outline.item[point]);
  const start = model.isWhole.value ? outline.time[0] : null;
  void model.worded.value;
  const sight = useRef({ first: 0, last: -1, timer: 0, read: () => undefined as void });
  sight.current.read = () => {
    const { first, last } = Object.assign(sight.current, { timer: 0 });
    model.words(Array.from(shown.subarray(first, last + 1)).flatMap((item) => [outline.first[item], outline.last[item]])).catch((error) => (model.problem.value = asProblem(error)));
  };
  const onRange = (first: number, last: number) => { // first words are read now and then while the point moves
    Object.assign(sight.current, { first, last });
    if (!outline.hasWords) sight.current.timer ||= window.setTimeout(() => sight.current.read(), SETTLE_MS);
  };
  useEffect(() => () => clearTimeout(sight.current.timer), []);
  const select = (row: number) => model.go(outline.last[shown[Math.max(0, Math.min(shown.length - 1, row))]]);
  const fold = (item: number) => {
    if (!collapsed.current.delete(item)) collapsed.current.add(item);
    setFolds((now) => now + 1);
  };
  const onKey = (event: KeyboardEvent) => {
    const item = shown[current];
    const step = { ArrowUp: -1, ArrowDown: 1, k: -1, j: 1 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (step) select(rowOf(outline, shown, outline.item[model.target]) + step);
    else if (item !== undefined && outline.hasChild[item] && { ArrowRight: true, ArrowLeft: false }[event.key] === collapsed.current.has(item)) fold(item);
    else if (event.key === "Enter") openEvent(true);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const onClick = (event: MouseEvent) => {
    const row = (event.target as Element).closest<HTMLElement>("[role=treeitem]");
    if (!row) return;
    const item = Number(row.dataset.item);
    if ((event.target as Element).closest(".caret") && outline.hasChild[item]) return fold(item);
    model.go(outline.last[item]);
    openEvent();
  };
  return (
    <section id="trace" class="panel" role="tabpanel" aria-label="Trace">
      <h2 class="unseen">Trace</h2>
      <div class="bar">
        <div id="kinds" class="kinds" role="group" aria-label="Show in the trace">
          {SHOWN.filter(([kind]) => outline.present[KINDS.indexOf(kind)]).map(([kind, name]) => (
            <button key={kind} type="button" class="kind" aria-pressed={kinds.has(kind)} style={{ "--mark": `var(--mark-${kind})` }} onClick={() => {
              const next = new Set(kinds);
              if (!next.delete(kind)) next.add(kind);
              setKinds(next);
            }}>{name}</button>
          ))}
        </div>
        <label class="check"><input id="hide" type="checkbox" checked={hideLater} onChange={(event) => setHideLater(event.currentTarget.checked)} /> Hide rows after this point</label>
      </div>
      {shown.length ? (
        <VirtualList id="tree" rowsId="rows" class="tree" role="tree" label="Steps and facts" size={shown.length} height={ROW_HEIGHT} current={current} active={current >= 0 ? `row-${shown[current]}` : undefined} onKeyDown={onKey} onClick={onClick} onRange={onRange} row={(index, place, slot) => <Row key={slot} model={model} item={shown[index]} isCurrent={index === current} isClosed={collapsed.current.has(shown[index])} place={place} start={start} />} />
      ) : <Empty>No row is of the selected kinds{hideLater ? " up to this point" : ""}.</Empty>}
    </section>
  );
}

// Events that contain a text, in the outline's names and first words.
export function searchOutline(outline: Outline, text: string): number[] {
  const find = text.toLowerCase();
  const out = [];
  for (let number = 0; number < outline.size; number++) {
    if (outline.texts[number]?.toLowerCase().includes(find) || outline.types[outline.type[number]].includes(find)) out.push(number);
  }
  return out;
}
