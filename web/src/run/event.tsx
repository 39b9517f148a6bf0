// The event at the point, with its step up to that event.

import { Rec, Facts, Failed, CallPill, Waiting } from "../ui/pieces";
import { count, duration, inLine, plural } from "../ui/text";
import { AroundContext, ErrorNode, Payload, TextBlock, Value } from "../ui/value";
import { Fragment, type ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { isOperator, Problem } from "../app/source";
import type { EventAnswer } from "./answers";
import { useEvents, useModel, type RunModel } from "./model";
import { ChangeLink, ResultLink, WhyLink } from "../views/ask/links";
import { titleOf, VERSION, versionName } from "./words";

const IN_RECORD = ["aggregate", "board", "memory", "team"]; // kinds of calls whose results follow from the state
const WRITES = ["board.put", "board.append", "board.add", "board.include", "board.discard", "board.merge", "team.send"];
const EVENT_BUTTONS = 12; // buttons shown of a step; those in the middle of a long stream are omitted
const READ_EVENTS = 60; // events of a step that are read to show its outcome; the newest ones of more

export function GoTo({ number, children, class: kind = "link" }: { number: number; children: ComponentChildren; class?: string }) {
  const model = useModel();
  return <button type="button" class={kind} aria-current={number === model.point.value ? "true" : undefined} onClick={() => model.go(number)}>{children}</button>;
}

// A link to an event by its address or id.
export function GoToAddress({ address, children, class: kind = "link" }: { address: string; children: ComponentChildren; class?: string }) {
  const model = useModel();
  const go = async () => {
    if (/^\d+\.\d+$/.test(address)) return model.goTo(address);
    const event = await model.event(address);
    if (event instanceof Problem) model.problem.value = event;
    else model.goTo(event.address);
  };
  return <button type="button" class={kind} onClick={() => void go()}>{children}</button>;
}

function EventButtons({ events, point }: { events: number[]; point: number }) {
  const { outline } = useModel();
  const ends = EVENT_BUTTONS / 2;
  const shown = events.length <= EVENT_BUTTONS ? events : [...events.slice(0, ends), -1, ...events.slice(-ends)];
  return (
    <div class="events" role="group" aria-label="Events of this step">
      {shown.map((number) => number < 0 ? <span key="cut" class="dim">… {count(events.length - EVENT_BUTTONS)} more …</span> : (
        <GoTo key={number} number={number} class={`event${number > point ? " later" : ""}`}>{outline.typeName(number).split(".")[1].replaceAll("_", " ")} <span class="mono dim">{outline.address(number)}</span></GoTo>
      ))}
    </div>
  );
}

function Steps({ agent, numbers }: { agent: string; numbers: number[] }) {
  const { outline } = useModel();
  const steps = outline.agentNamed(agent)?.steps ?? [];
  const items = numbers.map((number) => steps[number]).filter((item) => item !== undefined);
  if (!items.length) return null;
  return <span class="steps">{items.map((item) => <GoTo key={item} number={outline.last[item]}>{outline.step[outline.first[item]]} <Rec text={titleOf(outline, item)} /></GoTo>)}</span>;
}

// Result that a fork gave in place of a withheld effect.
const WITHHELD: Record<string, string> = {
  outcome: "answered with an outcome on record",
  shadow: "answered by the tool's shadow",
  refused: "refused, nothing answered for it",
};

// Outcome of a step up to the point, event by event.
function Outcome({ events }: { events: EventAnswer[] }) {
  const out: ComponentChildren[] = [];
  let yielded: unknown[] = [];
  for (const { type, data } of events) {
    const name = type.replace(/\.v\d+$/, "");
    if (name === "step.yielded") yielded = yielded.concat(data.items ?? []);
    else if (name === "step.attempted") {
      yielded = [];
      out.push(<h3>Attempt {data.attempt} ended without a result</h3>, <ErrorNode error={data.error} />);
    } else if (name === "step.completed") {
      if (!yielded.length) out.push(<Payload label="result" value={data.result ?? null} open />);
      if (data.closed) out.push(<p class="dim">its reader stopped early</p>);
      if (data.reused) out.push(<p class="dim">the outcome of step {data.reused}</p>);
      if (data.reused_from) out.push(<p class="dim">the answer of <Rec text={data.reused_from.agent} />#{data.reused_from.step} of run <Rec text={data.reused_from.run} />: nothing ran here</p>);
      if (data.usage && Object.keys(data.usage).length) out.push(<Payload label="usage" value={data.usage} />);
    } else if (name === "step.failed" || name === "step.in_doubt") {
      out.push(<h3>{name === "step.failed" ? "Failed" : "In doubt"}</h3>, <ErrorNode error={data.error} />);
    } else if (name === "step.blocked") {
      out.push(<h3>Blocked by rule <Rec text={data.rule} /></h3>, <TextBlock text={String(data.reason ?? "")} />);
    } else if (name === "step.withheld") {
      out.push(<h3>Withheld in this fork: {WITHHELD[data.how] ?? data.how}</h3>);
      if (data.would) out.push(<p>It would have done: <Rec text={data.would} /></p>);
    } else if (name === "step.settled") {
      out.push(<h3>Settled: {String(data.verdict).replaceAll("_", " ")}, by <Rec text={data.by} /></h3>);
      if (data.because) out.push(<TextBlock text={data.because} />);
      if (data.result !== undefined) out.push(<Payload label="result" value={data.result} open />);
    } else out.push(<Payload label={type} value={data} open />);
  }
  if (yielded.length) out.push(<Payload label={plural(yielded.length, "item")} value={yielded} open />);
  return <>{out.map((node, index) => <div key={index}>{node}</div>)}</>;
}

function StepEvent({ model, point, item, events }: { model: RunModel; point: number; item: number; events: EventAnswer[] }) {
  const { outline } = model;
  const all = outline.events(item);
  const [request, ...rest] = events;
  const data = request.data;
  const agent = outline.agentOf(outline.first[item]).name;
  const status = outline.statusAt(item, point);
  let inside = 0;
  for (let each = item + 1; outline.hasChild[item] && each < outline.items; each++) if (outline.parent[each] === item && outline.first[each] <= point) inside++;
  const took = rest.findLast((each) => each.data.duration_ms)?.data.duration_ms;
  const isOpen = (status === "requested" || status === "in_doubt") && point < all.at(-1)!;
  return (
    <>
      <div class="what"><Rec text={titleOf(outline, item)} class="name" /><CallPill status={status} /></div>
      <EventButtons events={all} point={point} />
      <Facts pairs={[
        ["step", `${agent}#${outline.step[outline.first[item]]}`],
        ["effects", data.effects],
        ["kind", data.kind === "tool" ? null : data.kind],
        ["inside", data.parent !== undefined && data.parent !== null && <Steps agent={agent} numbers={[data.parent]} />],
        ["holds", inside ? plural(inside, "part") : null],
        ["after", data.after?.length ? <Steps agent={agent} numbers={data.after} /> : null],
        ["branch", outline.branch.get(item)?.join(" / ")],
        ["took", duration(took)],
        ["key", data.key],
        ["prompts", data.prompts?.map((use: any) => `${use.prompt}@${use.version}${use.alias ? ` (${use.alias})` : ""}`).join(", ")],
      ]} />
      {request.type.startsWith("step.requested") ? <Payload label="arguments" value={data.arguments ?? {}} open /> : null}
      <Outcome events={rest} />
      {isOpen && <p class="note">At this point it had no outcome yet.</p>}
      {isOperator.value && <Changes run={model.run} step={`${agent}#${outline.step[outline.first[item]]}`} data={data} />}
    </>
  );
}

// Links to change what a call has on record: its result, what it wrote, or the version of a prompt.
function Changes({ run, step, data }: { run: string; step: string; data: any }) {
  const isWrite = WRITES.includes(data.tool);
  return (
    <>
      <ResultLink run={run} step={step} />
      {isWrite ? <ChangeLink run={run} edit={step}>Change what it wrote and go on</ChangeLink>
        : !IN_RECORD.includes(data.kind) && <ChangeLink run={run} edit={step}>Change the result and go on</ChangeLink>}
      {data.prompts?.map((use: any) => <ChangeLink key={use.prompt} run={run} prompt={`${step}=${use.prompt}`}>{`Use another version of prompt ${inLine(use.prompt)} and go on`}</ChangeLink>)}
    </>
  );
}

function MessageEvent({ data }: { data: any }) {
  const content = data.content ?? data.summary ?? null;
  return (
    <>
      <div class="what"><Rec text={data.role} class="name" /><span class="dim">{data.tokens ? plural(data.tokens, "token") : ""}{data.stands_for ? ` summary of ${plural(data.stands_for.length, "message")}, which stay on record` : ""}</span></div>
      {typeof content === "string" ? <TextBlock text={content} /> : <Payload label="content" value={content} open />}
      {data.fields && <Payload label="fields" value={data.fields} open />}
      {data.usage && Object.keys(data.usage).length > 0 && <Payload label="usage" value={data.usage} open />}
    </>
  );
}

export function DecisionEvent({ data }: { data: any }) {
  const rows: any[] = data.alternatives ?? [];
  return (
    <>
      <div class="what"><Rec text={data.question} class="name" /></div>
      <Facts pairs={[["selected", data.selected], ["threshold", data.threshold], ["confidence", data.confidence], ["made from", data.inputs?.join(", ")]]} />
      {rows.length > 0 && (
        <div class="wide"><table>
          <thead><tr>{["alternative", "score", "reason"].map((name) => <th key={name} scope="col">{name}</th>)}</tr></thead>
          <tbody>{rows.map((row) => (
            <tr key={row.id} class={row.id === data.selected ? "selected" : undefined}>
              <td><Rec text={row.id} /></td>
              <td>{row.score === undefined || row.score === null ? "" : String(row.score)}</td>
              <td><Rec text={row.reason ?? ""} />{row.rejected_because ? <Rec text={` rejected: ${row.rejected_because}`} /> : null}</td>
            </tr>
          ))}</tbody>
        </table></div>
      )}
      {data.because && <TextBlock text={data.because} />}
    </>
  );
}

function Envelope({ event }: { event: EventAnswer }) {
  const { data, more, is_inside: _, address, ...facts } = event;
  const shown = Object.fromEntries(Object.entries({ ...facts, call: data.call, fingerprint: data.fingerprint, ...more }).filter(([, value]) => value !== null && value !== undefined && value !== "" && !(Array.isArray(value) && !value.length)));
  return <Payload label="on record" value={shown} />;
}

// All events read that are needed to show an item up to the point: a step with its outcome, else one.
function eventsToRead(model: RunModel, item: number, point: number): number[] {
  if (model.outline.kindOfItem(item) !== "step") return [point];
  const [first, ...rest] = model.outline.events(item).filter((number) => number <= point);
  return [first, ...rest.slice(-READ_EVENTS)];
}

export function EventPanel() {
  const model = useModel();
  const { outline } = model;
  const [settled, find] = [model.at, model.find.value];
  void model.version.value;
  const [position, index] = settled.split(".").map(Number);
  const point = outline.at(position, index);
  const item = outline.item[point];
  const kind = outline.kindOfItem(item);
  const read = useEvents(eventsToRead(model, item, point).map((number) => outline.address(number)));
  const problem = read.find((each) => each instanceof Problem) as Problem | undefined;
  const events = read.filter((each): each is EventAnswer => each !== null && !(each instanceof Problem));
  const current = events.at(-1);
  const agent = outline.agentOf(point).name;
  const around = { run: model.path, find, list: (step: number, name: string) => model.list(agent, step, name) };
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => void (box.current!.scrollTop = 0), [item]);
  const rawLink = current && model.source.link(isOperator.value ? `/events/${current.address}/raw` : `${model.path}/events/${current.address}`);
  return (
    <section id="detail" class="panel" aria-label="Event at this point">
      <div class="bar"><h2>Event</h2><span id="address" class="mono">{outline.address(point)} {current && <span title={VERSION}><Rec text={versionName(current)} /></span>}{rawLink && <> <a href={rawLink} target="_blank" rel="noreferrer">raw</a></>}</span></div>
      <div ref={box} id="event" class="body" role="group" aria-label="Content of the event" tabIndex={0}><Fragment key={item}>
        {problem ? <Failed problem={problem} again={() => model.retry()} /> : events.length < read.length || !current ? <Waiting /> : (
          <AroundContext.Provider value={around}>
            {kind === "step" ? <StepEvent model={model} point={point} item={item} events={events} />
              : kind === "message" ? <><MessageEvent data={current.data} />{current.type.startsWith("message.") && <ChangeLink run={model.run} edit={current.address}>Change the message and go on</ChangeLink>}</>
              : kind === "decision" ? <><DecisionEvent data={current.data} /><WhyLink of={current.address} /></>
              : kind === "checkpoint" ? <><div class="what"><Rec text={current.data.name} class="name" /></div><Payload label="data" value={current.data.data ?? null} open /></>
              : <><div class="what"><Rec text={titleOf(outline, item)} class="name" /></div>{Object.keys(current.data).length ? <Value value={{ ...current.data }} name="" /> : null}{/^(board\.(put|added|appended|included|discarded|merged)|mail\.sent)/.test(current.type) && <ChangeLink run={model.run} edit={current.address}>Change what was written and go on</ChangeLink>}</>}
            <Envelope event={current} />
          </AroundContext.Provider>
        )}
      </Fragment></div>
    </section>
  );
}
