// Why a decision was made: as a graph of its inputs and consequences, as a tree, and in words.

import dagre from "@dagrejs/dagre";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { address, query, setQuery } from "../../app/place";
import { useRead } from "../../app/reads";
import { Empty, Rec, Shown, Tabs } from "../../ui/pieces";
import { plural, preview } from "../../ui/text";
import type { ViewProps } from "..";
import { AsOf, EventLink, Field, Head, type Lines, ofKind, Report, RunLink, Table, useTitle } from "./parts";

interface Fact { part: string; number: number; name: string; value: any; event: string | null; address: string | null; at: string | null }
interface Node { id: string; kind: string; label: string; text: string; address: string | null }

const GROUPS: [string, string, "in" | "out"][] = [
  ["input", "Inputs", "in"], ["after", "Earlier results", "in"], ["message", "Messages in its context", "in"], ["policy", "Refusals by the gate", "in"],
  ["approval", "Approvals", "in"], ["settlement", "Settled calls", "in"], ["version", "Versions", "in"], ["alternative", "Alternatives", "in"],
  ["followed", "Next actions", "out"], ["hand-off", "Handed on to", "out"], ["next", "The next decision", "out"], ["outcome", "Outcome of the run", "out"],
];
const FIRST_NODES = 50; // nodes of the graph before more are requested
const [WIDTH, HEIGHT] = [190, 44];

export default function WhyView({ params }: ViewProps) {
  const of = params.of ?? query.value.of ?? "";
  useTitle(of ? `Why ${of}` : "Why");
  const read = useRead<Lines>(of ? "/report/why" : null, { of });
  return (
    <div class="page ask">
      <Head heading="Why" note="The inputs of a decision, what it was chosen from, and what followed from it.">
        {!params.of && <Field name="of" label="Decision or run" placeholder="an event’s id, its address, or a run" wide />}
      </Head>
      {!of ? <Empty>Name a decision, or a run to list its decisions.</Empty> : <Shown read={read}>{(data) => <Explained data={data} />}</Shown>}
    </div>
  );
}

function Explained({ data }: { data: Lines }) {
  const facts = ofKind(data.lines, "fact") as Fact[];
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
        <AsOf position={end.position} />
      </>
    );
  }
  const run = String(facts.find((each) => each.part === "decision" && each.name === "run")?.value ?? "");
  const view = query.value.view ?? "graph";
  return (
    <>
      <Tabs label="Form" prefix="why" chosen={view} choose={(id) => setQuery({ view: id })} tabs={[{ id: "graph", label: "Graph" }, { id: "tree", label: "Tree" }, { id: "words", label: "In words" }]} />
      <div role="tabpanel" id={`why-${view}`} aria-labelledby={`tab-why-${view}`}>
        {view === "graph" ? <Graph facts={facts} run={run} /> : view === "tree" ? <Tree facts={facts} run={run} /> : <Report blocks={data.blocks} run={run} />}
      </div>
      <AsOf position={data.position} />
    </>
  );
}

const by = (facts: Fact[], part: string): Fact[] => facts.filter((each) => each.part === part);
const of = (facts: Fact[], name: string): string => String(by(facts, "decision").find((each) => each.name === name)?.value ?? "");

function label(fact: Fact): string {
  const value = fact.value;
  if (fact.part === "alternative") return `${fact.name}${value?.score === null || value?.score === undefined ? "" : ` ${value.score}`}`;
  if (fact.part === "input") return value?.source ?? fact.name;
  return fact.name;
}

function text(fact: Fact): string {
  const value = fact.value;
  return typeof value === "object" && value !== null ? preview(value.words ?? value.because ?? value.reason ?? value, 90) : preview(value, 90);
}

function Graph({ facts, run }: { facts: Fact[]; run: string }) {
  const [most, setMost] = useState(FIRST_NODES);
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const node = box.current?.querySelector<HTMLElement>(".node.decision");
    if (node) box.current!.scrollTop = node.offsetTop - box.current!.clientHeight / 2;
  }, [facts, most]);
  const { nodes, edges, size, more } = useMemo(() => laidOut(facts, most), [facts, most]);
  return (
    <>
      <div ref={box} class="scroll graph" tabIndex={0} role="group" aria-label="Graph of the decision: the tab Tree has the same as text">
        <svg width={size.width} height={size.height} viewBox={`0 0 ${size.width} ${size.height}`} role="img" aria-label={`Graph of ${nodes.length} nodes`}>
          <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" class="edge-head" /></marker></defs>
          {edges.map((points, index) => <polyline key={index} class="edge" points={points.map(({ x, y }) => `${x},${y}`).join(" ")} marker-end="url(#arrow)" />)}
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

// What followed from the inputs is drawn to the right. A result that is an input is drawn once.
function laidOut(all: Fact[], most: number) {
  const inputs = new Set(by(all, "input").map((fact) => fact.address));
  const facts = all.filter((fact) => fact.part !== "after" || !inputs.has(fact.address));
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 10, ranksep: 60, marginx: 8, marginy: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  const nodes: Node[] = [{ id: "decision", kind: "decision", label: of(facts, "selected"), text: of(facts, "question"), address: by(facts, "decision")[0]?.address ?? null }];
  let more = 0;
  const shown = GROUPS.map(([part, name, side]) => ({ part, name, side, list: by(facts, part) })).filter(({ list }) => list.length);
  const room = Math.max(2, Math.floor((most - 1) / Math.max(1, shown.length)));
  for (const { part, name, side, list } of shown) {
    const group = `group ${part}`;
    nodes.push({ id: group, kind: "group", label: name, text: plural(list.length, "item"), address: null });
    graph.setEdge(...((side === "in" ? [group, "decision"] : ["decision", group]) as [string, string]));
    const part_ = list.slice(0, Math.max(room, most - nodes.length - 2 * shown.length));
    more += list.length - part_.length;
    part_.forEach((fact, index) => {
      const id = `${part} ${index}`;
      nodes.push({ id, kind: part, label: label(fact), text: text(fact), address: fact.address });
      graph.setEdge(...((side === "in" ? [id, group] : [group, id]) as [string, string]));
    });
  }
  for (const node of nodes) graph.setNode(node.id, { width: WIDTH, height: HEIGHT });
  dagre.layout(graph);
  const placed = nodes.map((node) => ({ ...node, ...(graph.node(node.id) as { x: number; y: number }) }));
  const edges = graph.edges().map((edge: any) => graph.edge(edge).points as { x: number; y: number }[]);
  const { width = 0, height = 0 } = graph.graph() as { width?: number; height?: number };
  return { nodes: placed, edges, size: { width: Math.ceil(width), height: Math.ceil(height) }, more };
}

// The same as nested lists.
function Tree({ facts, run }: { facts: Fact[]; run: string }) {
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
                <ul>{list.map((fact, index) => <li key={index}><EventLink run={run} at={fact.address} /> <strong><Rec text={label(fact)} /></strong> <span class="dim"><Rec text={text(fact)} /></span></li>)}</ul>
              </details>
            </li>
          ) : null;
        })}
      </ul>
    </div>
  );
}
