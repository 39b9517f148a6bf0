// The state at the point: the run's life, its agents, and one agent in full.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { useRead, type Read } from "../app/reads";
import { query, setQuery } from "../app/place";
import type { Value } from "../app/source";
import { Facts, Failed, Panel, CallPill, Pill, Rec, Shown, Who } from "../ui/pieces";
import { assignment, count, firstWords, plural, preview } from "../ui/text";
import { AroundContext, failureText, Fold, Payload, TextBlock, Value as Content } from "../ui/value";
import type { AgentFigures, ContextAnswer, Message, RunAnswer } from "./answers";
import { DecisionEvent, GoTo, GoToAddress } from "./event";
import { useModel, type RunModel } from "./model";
import { upTo, type Agent, type Outline } from "./outline";
import { contextShown, runShown } from "./shown";
import { gistOf, titleOf } from "./words";

const LISTED = 30; // newest items of a list shown at once
const LARGE = 5_000; // events from which the agent at the point is read before all agents

export function Scores({ scores }: { scores: Record<string, number> | undefined }) {
  const list = Object.entries(scores ?? {});
  return list.length ? <span class="chips">{list.map(([name, value]) => <span key={name} class="chip"><Rec text={name} /> {value}</span>)}</span> : null;
}

const Field = ({ name, children }: { name: string; children: ComponentChildren }) => <span data-field={name}>{children}</span>;

// The newest items of a list, and a button for earlier ones; each item is built when it is shown.
export function Newest<T>({ list, make }: { list: T[]; make: (item: T) => ComponentChildren }) {
  const [size, setSize] = useState(LISTED);
  const from = Math.max(0, list.length - size);
  return (
    <div class="list">
      {from > 0 && <button type="button" class="more" onClick={() => setSize(size + LISTED)}>Show {count(Math.min(LISTED, from))} before, of {count(list.length)}</button>}
      {list.slice(from).map(make)}
    </div>
  );
}

function AgentRow({ figures, number, isChosen, choose }: { figures: AgentFigures; number: number; isChosen: boolean; choose: () => void }) {
  const statuses = Object.entries(figures.steps).filter(([, size]) => size);
  return (
    <button type="button" class="agent" data-agent={figures.agent} aria-pressed={isChosen} onClick={choose}>
      <Who name={figures.agent} number={number} />
      <span class="dim"><Rec text={figures.role} />{figures.version > 0 && <> v<Field name="version">{figures.version}</Field></>} · <Rec text={figures.left ?? "open"} /></span>
      <span class="dim counts">
        <Field name="messages">{plural(figures.messages, "message")}</Field>
        {figures.context_tokens === null ? null : <Field name="tokens">{plural(figures.context_tokens, "token")}</Field>}
        <Field name="decisions">{plural(figures.decisions.length, "decision")}</Field>
        {figures.checkpoints && <Field name="checkpoints">{plural(Object.keys(figures.checkpoints).length, "checkpoint")}</Field>}
      </span>
      <span class="tallies">{statuses.length ? statuses.map(([status, size]) => <span key={status} class="tally" data-status={status}>{count(size)} <CallPill status={status} /></span>) : <span class="dim">no steps</span>}</span>
    </button>
  );
}

// The address of a message: of the n-th message row of the agent at its position.
function addressOf(model: RunModel, agent: Agent | undefined, message: Message, before: Message[]): string {
  if (message.address) return message.address;
  const same = before.filter((each) => each.position === message.position).length;
  const rows = agent?.messages.filter((number) => model.outline.position[number] === message.position) ?? [];
  const number = rows[same] ?? rows[0];
  return number === undefined ? `${message.position}.0` : model.outline.address(number);
}

const ROLES = ["user", "assistant", "tool", "system"];

function MessageFold({ message, address }: { message: Message; address: string }) {
  const { role, content, ...rest } = message.message;
  const kind = ROLES.includes(message.role) ? message.role : "other";
  return (
    <Fold label={message.role} summary={firstWords(message.message)} class={`message role-${kind}`}>
      {() => (
        <>
          <GoToAddress address={address}>to {address}</GoToAddress>
          <span class="dim"> {message.tokens ? plural(message.tokens, "token") : ""}{message.kind === "summary" && message.messages ? ` summary of ${plural(message.messages, "message")}, which stay on record` : ""}</span>
          {typeof content === "string" ? <TextBlock text={content} /> : <Payload label="content" value={content ?? null} open />}
          {Object.keys(rest).length > 0 && <Payload label="fields" value={rest.fields ?? rest} open />}
        </>
      )}
    </Fold>
  );
}

function Section({ id, name, size, children }: { id: string; name: string; size: number; children: ComponentChildren }) {
  return size ? <section data-list={id}><h3>{name} <span class="dim">{count(size)}</span></h3>{children}</section> : null;
}

function Window({ model, agent, version, at }: { model: RunModel; agent: string; version: number; at: Value }) {
  const read = useRead<ContextAnswer>(`${model.path}/context`, { at, agent }, String(version));
  return (
    <Shown read={read} name="the context window">
      {(answer) => {
        const { messages } = contextShown(answer);
        const list = messages[agent] ?? [];
        const lane = model.outline.agentNamed(agent);
        return <Section id="messages" name="Context window" size={list.length}><Newest list={list.map((message, index) => ({ message, index }))} make={({ message, index }) => <MessageFold key={message.version} message={message} address={addressOf(model, lane, message, list.slice(Math.max(0, index - 50), index))} />} /></Section>;
      }}
    </Shown>
  );
}

function AgentInFull({ figures, at, point }: { figures: AgentFigures; at: Value; point: number }) {
  const model = useModel();
  const { outline } = model;
  const lane = outline.agentNamed(figures.agent);
  const decisions = lane?.decisions.slice(0, upTo(lane.decisions, point)) ?? [];
  const saved = lane?.checkpoints.slice(0, upTo(lane.checkpoints, point)) ?? [];
  const open = figures.open_steps.map((step) => lane?.steps[Number(step.step.split("#").at(-1))]).filter((item) => item !== undefined);
  return (
    <>
      <h3 class="of"><Rec text={figures.agent} /></h3>
      <Section id="open" name="Open steps" size={open.length}>
        <Newest list={open} make={(item) => (
          <div key={item} class="line"><GoTo number={outline.first[item]}>#{outline.step[outline.first[item]]} <Rec text={titleOf(outline, item)} /></GoTo><span class="gist"><Rec text={gistOf(outline, item)} /></span><CallPill status={outline.statusAt(item, point)} /></div>
        )} />
      </Section>
      <Section id="checkpoints" name="Checkpoints" size={Object.keys(figures.checkpoints ?? {}).length}>
        <Newest list={Object.entries(figures.checkpoints ?? {})} make={([name, data]) => {
          const number = saved.findLast((each) => outline.names[each] === name);
          return <Fold key={name} label={name} summary={preview(data)}>{() => <>{number !== undefined && <GoTo number={number}>to {outline.address(number)}</GoTo>}<Content value={data} /></>}</Fold>;
        }} />
      </Section>
      <Section id="decisions" name="Decisions" size={figures.decisions.length}>
        <Newest list={figures.decisions.map((decision, index) => ({ decision, number: decisions[index] }))} make={({ decision, number }) => (
          <Fold key={number} label={decision.question} summary={`→ ${decision.selected}`}>{() => <>{number !== undefined && <GoTo number={number}>to {outline.address(number)}</GoTo>}<DecisionEvent data={decision} /></>}</Fold>
        )} />
      </Section>
      <Window model={model} agent={figures.agent} version={figures.version} at={at} />
    </>
  );
}

// The agent of an event, or of the nearest agent's event before it.
function laneAt(outline: Outline, point: number): Agent {
  let number = point;
  while (number > 0 && !outline.isAgents(number)) number--;
  return outline.agentOf(outline.isAgents(number) ? number : point);
}

export function StatePanel() {
  const model = useModel();
  const { outline, at } = model;
  const [position, index] = at.split(".").map(Number);
  const point = outline.at(position, index);
  const selected = query.value.agent ?? "";
  const asOf = model.asOf(at);
  const lane = outline.agentNamed(selected) ?? laneAt(outline, point);
  // Of a large run the agent of the event is read and shown before all agents, which take longer.
  const isLarge = !model.source.now && (outline.size > LARGE || !model.isWhole.value);
  const isHere = (read: Read<RunAnswer>) => read.data !== null && read.query.at === asOf;
  const [whole, setWhole] = useState<Value>(null); // the point of which all agents are here
  const hasAll = whole === asOf;
  const one = useRead<RunAnswer>(isLarge && !hasAll ? model.path : null, { at: asOf, agent: lane.name }, at);
  const isRead = !isLarge || hasAll || (model.isWhole.value && (one.problem !== null || (isHere(one) && one.query.agent === lane.name)));
  const all = useRead<RunAnswer>(isRead ? model.path : null, { at: asOf }, at);
  useEffect(() => void (isHere(all) && setWhole(asOf)), [all.data]);
  const read = isLarge && !isHere(all) && (isHere(one) || (one.data && !all.data)) ? one : all;
  return (
    <Panel id="state" name="State" label="State at this point" bar={<span id="asof" class="mono">at {at}</span>} body={{ id: "now" }} busy={read === one || read.loading || at !== outline.address(model.point.value)}>
      {useMemo(() => <Shown read={read} name="the state">
        {(answer) => {
          const { run, agents } = runShown(answer, outline);
          const shown = [lane.name, agents[0]?.agent].map((name) => agents.find((each) => each.agent === name)).find((each) => each);
          return (
            <AroundContext.Provider value={{ run: model.path }}>
              <Facts pairs={[
                ["status", <Field name="status"><Pill status={run.status} /></Field>],
                ["at work", run.at_work?.length ? `${run.at_work.join(", ")} (or killed)` : null],
                ["error", run.error && failureText(run.error)],
                ["assigned", run.assigned && assignment(run.assigned)],
                ["scores", Object.keys(run.scores ?? {}).length > 0 && <Scores scores={run.scores} />],
              ]} />
              <div class="agents" role="group" aria-label="Agents; choose one to keep it in view">
                {agents.map((each) => <AgentRow key={each.agent} figures={each} number={outline.agentNamed(each.agent)?.number ?? 0} isChosen={selected === each.agent} choose={() => setQuery({ agent: selected === each.agent ? "" : each.agent })} />)}
                {read === one && (all.problem ? <Failed problem={all.problem} again={all.reload} /> : <p class="note" role="status">Reading the other agents…</p>)}
                {!agents.length && <p class="note">No agent had begun at this point.</p>}
              </div>
              {shown && <AgentInFull key={shown.agent} figures={shown} at={read.query.at} point={point} />}
            </AroundContext.Provider>
          );
        }}
      </Shown>, [read.data, read.problem, read === one, all.problem, lane, selected, point, model.version.peek()])}
    </Panel>
  );
}
