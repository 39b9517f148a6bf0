// Why a decision was made: as a graph of its inputs and consequences, as a tree, and in words.

import { graphlib, layout } from "@dagrejs/dagre";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { address, query, setQuery } from "../../app/place";
import { useRead } from "../../app/reads";
import { Empty, Rec, Shown, Tabs } from "../../ui/pieces";
import { plural, preview } from "../../ui/text";
import type { ViewProps } from "..";
import { EventLink, Field, Page, type Lines, ofKind, Report, RunLink, Table } from "./parts";

interface Fact { part: string; number: number; name: string; value: any; event: string | null; address: string | null; at: string | null; chosen?: boolean }
interface Cause { of: string; address: string; agent: string; step: number; tool: string; words: string; is_next: boolean }
interface Node { id: string; kind: string; label: string; text: string; address: string | null }
interface Placed extends Node { x: number; y: number; width: number; height: number }

const GROUPS: [string, string, "in" | "out"][] = [
  ["alternative", "Alternatives", "in"], ["input", "Inputs", "in"], ["after", "Earlier results", "in"], ["message", "Messages in its context", "in"], ["policy", "Earlier refusals by the gate", "in"],
  ["approval", "Earlier approvals", "in"], ["settlement", "Earlier settled calls", "in"], ["version", "Versions", "in"],
  ["followed", "Next actions", "out"], ["later-policy", "Later refusals by the gate", "out"], ["later-approval", "Later approvals", "out"], ["later-settlement", "Later settled calls", "out"], ["hand-off", "Handed on to", "out"], ["next", "The next decision", "out"], ["outcome", "Outcome of the run", "out"],
];
const FIRST_NODES = 50; // nodes of the graph before more are requested
const [WIDTH, HEIGHT] = [190, 44]; // px of a node
const [GAP, BETWEEN] = [8, 40]; // between nodes, and from column to column

export default function WhyView({ params }: ViewProps) {
  const of = params.of ?? query.value.of ?? "";
  const read = useRead<Lines & { causes: Cause[] }>(of ? "/report/why" : null, { of });
  return (
    <Page title={of ? `Why ${of}` : "Why"} wide heading="Why" note="The inputs of a decision, what it was chosen from, and what followed from it." fields={!params.of && <Field name="of" label="Decision or run" placeholder="an event’s id, its address, or a run" wide />}>
      {!of ? <Empty>Name a decision, or a run to list its decisions.</Empty> : <Shown read={read}>{(data) => <Explained data={data} />}</Shown>}
    </Page>
  );
}

function Explained({ data }: { data: Lines & { causes: Cause[] } }) {
  const facts = useMemo(() => marked(ofKind(data.lines, "fact")), [data]);
  const end = data.lines.at(-1);
  if (end?.kind === "decisions") {
    return (
      <>
        <p>{plural(data.lines.length - 1, "decision")} of run <RunLink run={end.run} /></p>
        <Table label="decisions" rows={data.lines.slice(0, -1)} empty="The run has no decision on record." columns={[
          { name: "at", cell: (row: any) => <EventLink run={row.run} at={row.address} /> },
          { name: "agent", cell: (row: any) => <Rec text={row.agent} /> },
          { name: "question", cell: (row: any) => <a href={address(`/why/${encodeURIComponent(row.decision)}`)}><Rec text={row.question} /></a> },
          { name: "selected", cell: (row: any) => <Rec text={row.selected} /> },
          { name: "margin", cell: (row: any) => (row.margin === null ? "" : row.margin.toPrecision(3)), right: true },
        ]} />
      </>
    );
  }
  const run = String(facts.find((each) => each.part === "decision" && each.name === "run")?.value ?? "");
  const view = query.value.view ?? "graph";
  return (
    <>
      <Tabs label="Form" prefix="why" chosen={view} choose={(id) => setQuery({ view: id })} tabs={[{ id: "graph", label: "Graph" }, { id: "tree", label: "Tree" }, { id: "words", label: "In words" }]} />
      <div role="tabpanel" id={view} aria-labelledby={`why-${view}`}>
        {view === "graph" ? <Graph facts={facts} causes={data.causes} run={run} /> : view === "tree" ? <Tree facts={facts} causes={data.causes} run={run} /> : <Report blocks={data.blocks} run={run} />}
      </div>
    </>
  );
}

const by = (facts: Fact[], part: string): Fact[] => facts.filter((each) => each.part === part);
const of = (facts: Fact[], name: string): string => String(by(facts, "decision").find((each) => each.name === name)?.value ?? "");

// Mark the chosen alternative. What happened near the decision, but after it, is no input of it.
const NEARBY = ["policy", "approval", "settlement"];
const placeOf = (address: string | null): number => (address ?? "0.0").split(".").reduce((sum, part, at) => sum + Number(part) / (at ? 1e6 : 1), 0);
function marked(facts: Fact[]): Fact[] {
  const end = placeOf(by(facts, "decision")[0]?.address ?? null);
  return facts.map((fact) => ({ ...fact, part: NEARBY.includes(fact.part) && placeOf(fact.address) > end ? `later-${fact.part}` : fact.part, chosen: fact.part === "alternative" && fact.name === of(facts, "selected") }));
}

function label(fact: Fact): string {
  const value = fact.value;
  if (fact.part === "alternative") return `${fact.chosen ? "✓ " : ""}${fact.name}${value?.score === null || value?.score === undefined ? "" : ` ${value.score}`}`;
  if (fact.part === "input" && value) return value.key ?? value.tool ?? fact.name;
  return fact.name;
}

function text(fact: Fact): string {
  const value = fact.value;
  if (fact.part === "input" && value?.agent && value.step) return `${value.agent}#${value.step} ${preview(value.words ?? "", 90)}`;
  if (fact.part === "alternative" && value) return value.reason ?? value.rejected_because ?? (value.margin === null ? "" : `margin ${Number(value.margin.toPrecision(3))}`);
  if (fact.part === "version" && value) return [value.version && `version ${value.version}`, value.effects, value.source && `source ${String(value.source).slice(0, 8)}`].filter(Boolean).join(", ");
  return typeof value === "object" && value !== null ? preview(value.words ?? value.because ?? value.reason ?? value, 90) : preview(value, 90);
}

function Graph({ facts, causes, run }: { facts: Fact[]; causes: Cause[]; run: string }) {
  const [most, setMost] = useState(FIRST_NODES);
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const node = box.current?.querySelector<HTMLElement>(".node.decision");
    if (node) box.current!.scrollTo(node.offsetLeft + (node.offsetWidth - box.current!.clientWidth) / 2, node.offsetTop + (node.offsetHeight - box.current!.clientHeight) / 2);
  }, [facts, most]);
  const { nodes, edges, size, more } = useMemo(() => laidOut(facts, causes, most), [facts, causes, most]);
  return (
    <>
      <div ref={box} class="scroll graph" tabIndex={0} role="group" aria-label="Graph of the decision: the tab Tree has the same as text">
        <svg width={size.width} height={size.height} viewBox={`0 0 ${size.width} ${size.height}`} role="img" aria-label={`Graph of ${nodes.length} nodes`}>
          <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" class="edge-head" /></marker></defs>
          {edges.map((edge, index) => <path key={index} class="edge" d={edge.path} marker-end={edge.to.kind === "decision" || edge.from.kind === "decision" ? "url(#arrow)" : undefined} />)}
        </svg>
        {nodes.map((node) => {
          const style = { left: `${node.x - WIDTH / 2}px`, top: `${node.y - HEIGHT / 2}px`, width: `${WIDTH}px`, height: `${HEIGHT}px` };
          const content = <><span class="node-label"><Rec text={node.label} /></span><span class="node-text dim"><Rec text={node.text} /></span></>;
          return node.address ? <a key={node.id} class={`node ${node.kind}`} style={style} href={address(`/runs/${encodeURIComponent(run)}`, { at: node.address })} title={`${node.label}: ${node.text}`}>{content}</a> : <span key={node.id} class={`node ${node.kind}`} style={style} title={`${node.label}: ${node.text}`}>{content}</span>;
        })}
      </div>
      {more > 0 && <p class="note">{`${plural(more, "more node")} of ${plural(more + nodes.length, "node")}. `}<button type="button" onClick={() => setMost(most + 4 * FIRST_NODES)}>Show more</button></p>}
    </>
  );
}

interface Edge { from: Node; to: Node; path: string }

// Inputs and their groups, the decision, groups of what followed and its parts, from left to right. A result
// that is an input is drawn once. On the left of them the results behind the inputs, then those behind these.
function laidOut(all: Fact[], causes: Cause[], most: number): { nodes: Placed[]; edges: Edge[]; size: { width: number; height: number }; more: number } {
  const graph = new graphlib.Graph<any, Placed, any>().setGraph({ rankdir: "LR", nodesep: GAP, edgesep: GAP, ranksep: BETWEEN, marginx: GAP, marginy: GAP });
  const add = (node: Node) => graph.setNode(node.id, { ...node, width: WIDTH, height: HEIGHT, x: 0, y: 0 });
  const link = (side: "in" | "out", one: string, other: string) => graph.setEdge(...(side === "in" ? [one, other] : [other, one]) as [string, string], {});
  const inputs = new Set(by(all, "input").map((fact) => fact.address));
  const facts = all.filter((fact) => fact.part !== "after" || !inputs.has(fact.address));
  const groups = GROUPS.map(([part, name, side]) => ({ part, name, side, list: by(facts, part) })).filter(({ list }) => list.length);
  const shares = shared(groups.map(({ list }) => list.length), most - 1 - groups.length);
  const placed = new Map<string, { id: string; level: number }>(); // inputs and results behind them, by address
  let more = 0;
  add({ id: "decision", kind: "decision", label: of(facts, "selected"), text: of(facts, "question"), address: by(facts, "decision")[0]?.address ?? null });
  groups.forEach(({ part, name, side, list }, index) => {
    const shown = list.slice(0, shares[index]);
    more += list.length - shown.length;
    add({ id: part, kind: "group", label: name, text: list.length > shown.length ? `${shown.length.toLocaleString("en-US")} of ${plural(list.length, "item")}` : plural(list.length, "item"), address: null });
    link(side, part, "decision");
    shown.forEach((fact, at) => {
      const id = `${part} ${at}`;
      add({ id, kind: `${part}${fact.chosen ? " chosen" : /^run (failed|cancelled)/.test(fact.name) ? " ended-badly" : ""}`, label: label(fact), text: text(fact), address: fact.address });
      link(side, id, part);
      if (part === "input" && fact.address) placed.set(fact.address, { id, level: 0 });
    });
  });
  for (const cause of causes) {
    const target = placed.get(cause.of);
    if (!target) continue;
    if (!placed.has(cause.address)) {
      if (graph.nodeCount() >= most) {
        more++;
        continue;
      }
      const id = `cause ${cause.address}`;
      placed.set(cause.address, { id, level: target.level + 1 });
      add({ id, kind: "cause", label: `${cause.agent}#${cause.step} ${cause.tool}`, text: preview(cause.words ?? "", 90), address: cause.address });
    }
    const source = placed.get(cause.address)!;
    if (source.level > target.level) link("in", source.id, target.id); // others are in the tree: in a graph they make a chain
  }
  layout(graph, { disableOptimalOrderHeuristic: !graph.nodes().some((id) => graph.node(id).kind === "cause") }); // without crossings the order of the record stays
  const edges = graph.edges().map((edge) => {
    const [from, to] = [graph.node(edge.v), graph.node(edge.w)];
    return { from, to, path: curve(from, to, graph.edge(edge).points) };
  });
  return { nodes: graph.nodes().map((id) => graph.node(id)), edges, size: graph.graph(), more };
}

// Divide places: everyone gets an equal share, and who needs less leaves the rest to the others.
function shared(sizes: number[], places: number): number[] {
  const shares = sizes.map(() => 0);
  for (let left = Math.max(places, sizes.length); left > 0; ) {
    const open = sizes.flatMap((size, index) => (shares[index] < size ? [index] : []));
    if (!open.length) break;
    for (const index of open) if (left-- > 0) shares[index]++;
  }
  return shares;
}

// From the right side of a node to the left side of another; between columns far apart along the layout's points.
function curve(from: Placed, to: Placed, points: { x: number; y: number }[]): string {
  const between = points.length > 3 ? points.slice(1, -1) : [];
  let [x, y, path] = [from.x + WIDTH / 2, from.y, `M${from.x + WIDTH / 2} ${from.y}`];
  for (const next of [...between, { x: to.x - WIDTH / 2 - 2, y: to.y }]) {
    path += `C${(x + next.x) / 2} ${y} ${(x + next.x) / 2} ${next.y} ${next.x} ${next.y}`;
    ({ x, y } = next);
  }
  return path;
}

// The same as nested lists.
function Tree({ facts, causes, run }: { facts: Fact[]; causes: Cause[]; run: string }) {
  return (
    <div class="tree">
      <p><strong><Rec text={of(facts, "question")} /></strong> <Rec text={of(facts, "selected")} /> <EventLink run={run} at={by(facts, "decision")[0]?.address} /></p>
      <ul>
        {GROUPS.map(([part, name]) => {
          const list = by(facts, part);
          return list.length ? (
            <li key={part}>
              <details open={list.length <= 12}>
                <summary>{name} <span class="dim">{list.length.toLocaleString("en-US")}</span></summary>
                <ul>{list.map((fact, index) => <li key={index}><EventLink run={run} at={fact.address} /> <strong><Rec text={label(fact)} /></strong> <span class="dim"><Rec text={text(fact)} /></span>{part === "input" && <Behind of={fact.address} causes={causes} run={run} />}</li>)}</ul>
              </details>
            </li>
          ) : null;
        })}
      </ul>
    </div>
  );
}

const behind = (of: string | null, causes: Cause[]): Cause[] => [...new Map(causes.filter((cause) => cause.of === of && cause.address !== of).map((cause) => [cause.address, cause])).values()];

// The results that were used in the call of another one, each with those behind it once it is opened.
function Behind({ of, causes, run, seen = [] }: { of: string | null; causes: Cause[]; run: string; seen?: string[] }) {
  const [isOpen, setOpen] = useState(false);
  const list = behind(of, causes).filter((cause) => !seen.includes(cause.address));
  if (!of || !list.length) return null;
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{plural(list.length, "result")} behind it</summary>
      {isOpen && <ul>{list.map((cause) => (
        <li key={cause.address}><EventLink run={run} at={cause.address} /> <strong><Rec text={`${cause.agent}#${cause.step} ${cause.tool}`} /></strong> <span class="dim"><Rec text={preview(cause.words ?? "", 90)} /></span>
          <Behind of={cause.address} causes={causes} run={run} seen={[...seen, of]} /></li>
      ))}</ul>}
    </details>
  );
}
