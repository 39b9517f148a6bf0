// What agents share at the point: keys of the board, tasks, and messages as a chat.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { useRead } from "../app/reads";
import { isText } from "../app/keys";
import { ChangeLink, OriginLink } from "../views/ask/links";
import { Chip, Facts, Panel, Pill, Rec, Shown, Who } from "../ui/pieces";
import { count, duration, inLine, moment, plural, preview, printable } from "../ui/text";
import { AroundContext, Fold, Payload, TextBlock, Value } from "../ui/value";
import type { BoardAnswer, EventAnswer, Key, Task, TasksAnswer } from "./answers";
import { GoTo, GoToAddress } from "./event";
import { useEvents, useModel } from "./model";
import { upTo, type Outline } from "./outline";
import { boardShown } from "./shown";
import { Newest } from "./state";

const KEYS_SHOWN = 50; // rows of a list shown at once; changed ones are always shown

function Here({ change }: { change: Key["change"] }) {
  return change ? <span class="chip here" data-here={change}>{change} here</span> : null;
}

// The first rows of a list and those that the event changed, the rest on a click; a note if there are none.
function Some<T extends { change?: Key["change"] }>({ rows, make, none }: { rows: T[]; make: (row: T) => ComponentChildren; none: string }) {
  const [isAll, setAll] = useState(false);
  const some = isAll ? rows : rows.filter((row, index) => index < KEYS_SHOWN || row.change);
  if (!rows.length) return <p class="note">{none}</p>;
  return <div class="list">{some.map(make)}{some.length < rows.length && <button type="button" class="more" onClick={() => setAll(true)}>Show all {count(rows.length)}</button>}</div>;
}

// A list that all agents share, at the point.
function PointPanel<T>({ id, name, children }: { id: string; name: string; children: (answer: T) => ComponentChildren }) {
  const model = useModel();
  const { at } = model;
  const read = useRead<T>(`${model.path}/${id}`, { at: model.asOf(at) }, at);
  return (
    <Panel id={id} name={name} label={`${name} at this point`} bar={<span id={`${id}-at`} class="mono">at {at}</span>} busy={read.loading}>
      <AroundContext.Provider value={{ run: model.path }}><Shown read={read}>{children}</Shown></AroundContext.Provider>
    </Panel>
  );
}

// Members of a set, which is recorded as {"$set": [...]}; other values as they are.
const valueOf = (row: Key): any => (row.kind === "set" ? ((row.value as any)?.$set ?? row.value) : row.value);

function KeyRow({ row }: { row: Key }) {
  const model = useModel();
  if (row.kind === null) return <p class="entity gone" data-key={row.key}><Rec text={row.key} class="label" /><span class="chips"><Here change={row.change} /></span></p>;
  const labels = Object.entries(row.labels ?? {});
  const where = row.address ?? row.event;
  const chips = (
    <span class="chips">
      {row.kind === "value" ? null : <Chip><Rec text={row.kind ?? ""} /></Chip>}
      {row.version > 0 && <span class="chip" data-field="version">v{row.version}</span>}
      <Here change={row.change} />
    </span>
  );
  return (
    <Fold label={row.key} summary={preview(valueOf(row))} id={`key ${row.key}`} class={`entity${row.change ? " changed" : ""}`} chips={chips} data={{ "data-key": row.key }}>
      {() => (
        <>
          <Facts pairs={[
            ["written by", <span><Rec text={row.author} /> as <Rec text={row.role} />{where && <>, at <GoToAddress address={where}>{row.address ?? "its event"}</GoToAddress></>}</span>],
            ["expires", row.expires && moment(Date.parse(row.expires) * 1000, true)],
            ["labels", labels.map(([name, value]) => `${name}=${value}`).join(", ")],
          ]} />
          <Value value={valueOf(row)} />
          <OriginLink run={model.run} name={row.key} />
          {where && <ChangeLink run={model.run} edit={where}>Change the value and go on</ChangeLink>}
        </>
      )}
    </Fold>
  );
}

export function BoardPanel() {
  const [event] = useEvents([useModel().at]);
  const here = event && "id" in event ? event.id : null;
  return (
    <PointPanel<BoardAnswer> id="board" name="Board">{(answer) => {
      const rows = boardShown(answer).keys.map((key) => key.change !== undefined ? key : { ...key, change: here !== null && key.event === here ? (key.version === 1 ? "new" as const : "changed" as const) : "" as const });
      return <Some rows={rows} make={(row) => <KeyRow key={row.key} row={row} />} none={answer.isEver === false ? "No key was written in this run." : "No key is there at this point."} />;
    }}</PointPanel>
  );
}

const namesText = (names: (string | number)[] | undefined): string => (names ?? []).map((name) => (typeof name === "number" ? `and ${plural(name, "other")}` : name)).join(", ");
const isEmpty = (value: unknown) => value === null || value === undefined;

function TaskRow({ row }: { row: Task }) {
  const whom = row.agent || (row.role ? `role ${row.role}` : "anybody");
  const [waits, never] = [namesText(row.waits_for), namesText(row.blocked_by)];
  const chips = (
    <span class="chips">
      <span data-field="status"><Pill status={row.status} /></span>
      {row.holder && <span class="chip" data-field="holder"><Rec text={row.holder} /> (claim {row.number})</span>}
      {isEmpty(row.lease_left_s) ? null : <span class="chip" data-field="lease">lease left {duration(row.lease_left_s! * 1000)}</span>}
      {waits && <span class="chip" data-field="waits">waits for <Rec text={waits} /></span>}
      <Here change={row.change} />
    </span>
  );
  return (
    <Fold label={row.title} summary={`${row.id}, for ${whom}`} id={`task ${row.id}`} class={`entity${row.change ? " changed" : ""}`} chips={chips} data={{ "data-task": row.id }}>
      {() => (
        <>
          <Facts pairs={[
            ["task", <Rec text={row.id} class="mono" />],
            ["added by", row.by],
            ["for", whom],
            [row.status === "done" || row.status === "failed" ? "was held by" : "held by", row.holder && `${row.holder} (claim ${row.number})`],
            ["lease until", isEmpty(row.lease_left_s) || !row.expires ? null : moment(row.expires)],
            ["waits for", waits],
            ["never done", never],
            ["because", row.because],
            ["error", row.error],
          ]} />
          {(["what", "given", "result"] as const).map((name) => isEmpty(row[name]) ? null : <Payload key={name} label={name} value={row[name]} open />)}
        </>
      )}
    </Fold>
  );
}

export function TasksPanel() {
  return (
    <PointPanel<TasksAnswer> id="tasks" name="Tasks">
      {(answer) => <Some rows={Object.values(answer.tasks)} make={(row) => <TaskRow key={row.id} row={row} />} none={answer.isEver === false ? "This run has no tasks." : "No task is there at this point."} />}
    </PointPanel>
  );
}

// ---------------------------------------------------------------- chat

const BUBBLE_CHARACTERS = 700; // of a message shown at once; the rest on a click
const CHATS: [string, string][] = [["mail", "Between agents"], ["window", "In context windows"]];
const NEWEST = 30; // messages shown, and read, at once

// Messages between agents and those that agents recorded of their windows, ascending.
const messages = new WeakMap<Outline, { size: number; mail: number[]; window: number[] }>();
export function messagesOf(outline: Outline): { mail: number[]; window: number[] } {
  const known = messages.get(outline);
  if (known?.size === outline.size) return known;
  const types = outline.types.findIndex((type) => type.startsWith("mail.sent"));
  const mail = [];
  for (let number = 0; types >= 0 && number < outline.size; number++) if (outline.type[number] === types) mail.push(number);
  const window = outline.agents.flatMap((agent) => agent.messages).sort((a, b) => a - b);
  const found = { size: outline.size, mail, window };
  messages.set(outline, found);
  return found;
}

function Content({ content }: { content: any }) {
  const [isWhole, setWhole] = useState(false);
  if (typeof content !== "string") return <Payload label="content" value={content ?? null} open />;
  if (content.length <= BUBBLE_CHARACTERS) return <p class="bubble-text rec" dir="auto">{printable(content)}</p>;
  if (isWhole) return <TextBlock text={content} />;
  return (
    <div>
      <p class="bubble-text rec" dir="auto">{printable(content.slice(0, BUBBLE_CHARACTERS)) + "…"}</p>
      <button type="button" class="more" onClick={() => setWhole(true)}>Show all {count(content.length)} characters</button>
    </div>
  );
}

function Bubble({ number, event, openEvent }: { number: number; event: EventAnswer | null; openEvent: () => void }) {
  const model = useModel();
  const { outline } = model;
  const isHere = number === model.point.value;
  const isMail = outline.typeName(number) === "mail.sent";
  const data = event?.data ?? {};
  const agent = outline.agentOf(number);
  const isOwn = !isMail && outline.names[number] === "assistant";
  const from = isMail ? (event?.agent ?? agent.name) : isOwn ? agent.name : outline.names[number];
  const sender = isMail || isOwn ? outline.agentNamed(from) : undefined;
  const to = isMail ? (data.agent ? data.agent : data.role ? `everyone of role ${data.role}` : "") : isOwn ? "" : agent.name;
  const role = isMail ? data.sender_role : isOwn ? "assistant" : "";
  const side = sender && (outline.agents.length <= 2 || sender.number % 2) ? "right" : "left";
  const onClick = (click: MouseEvent) => {
    if ((click.target as Element).closest("button, summary, details, pre") || String(getSelection())) return;
    model.go(number);
    openEvent();
  };
  return (
    <article class={`bubble ${side} ${isMail ? "mail" : "window"}`} data-at={number} aria-label={inLine(`${from}${to ? ` to ${to}` : ""}`)} aria-current={isHere ? "true" : undefined} onClick={onClick}>
      <div class="whose">
        <Who name={from} number={sender?.number} />
        {role && <Rec text={role} class="dim" />}
        {to && <span class="to">→ <Rec text={to} /></span>}
        <GoTo number={number} class="link mono">{outline.address(number)}</GoTo>
        {isHere && <span class="chip here">here</span>}
      </div>
      {event ? <Content content={data.content ?? data.summary ?? data.fields ?? null} /> : <p class="bubble-text rec dim">{printable(outline.texts[number] ?? "…")}</p>}
    </article>
  );
}

export function ChatPanel({ openEvent }: { openEvent: () => void }) {
  const model = useModel();
  const { outline } = model;
  const [point, version] = [model.point.value, model.version.value];
  const [hidden, setHidden] = useState<string[]>([]);
  const all = useMemo(() => messagesOf(outline), [version]);
  const shown = useMemo(() => [...(hidden.includes("mail") ? [] : all.mail), ...(hidden.includes("window") ? [] : all.window)].sort((a, b) => a - b), [all, hidden]);
  const size = upTo(shown, point);
  const list = shown.slice(0, size);
  const isSettled = model.at === outline.address(point);
  const newest = list.slice(-NEWEST);
  const events = useEvents(isSettled ? newest.map((number) => outline.address(number)) : []);
  const byNumber = new Map(newest.map((number, index) => [number, events[index]]));
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (box.current && !isText(document.activeElement)) box.current.scrollTop = box.current.scrollHeight;
  }, [size, hidden]);
  const left = shown.length - size;
  return (
    <Panel id="chat" name="Chat" label="Chat: messages up to this point" body={{ ref: box, tabIndex: 0 }} bar={
      <div id="chats" class="kinds" role="group" aria-label="Show in the chat">
        {CHATS.filter(([kind]) => all[kind as "mail" | "window"].length).map(([kind, name]) => (
          <button key={kind} type="button" class="kind bare" aria-pressed={!hidden.includes(kind)} onClick={() => setHidden(hidden.includes(kind) ? hidden.filter((each) => each !== kind) : [...hidden, kind])}>{name} {count(all[kind as "mail" | "window"].length)}</button>
        ))}
      </div>
    }>
      <AroundContext.Provider value={{ run: model.path }}>
        <Newest list={list} make={(number) => {
          const event = byNumber.get(number);
          return <Bubble key={number} number={number} event={event && "id" in event ? event : null} openEvent={openEvent} />;
        }} />
      </AroundContext.Provider>
      {!all.mail.length && !all.window.length ? <p class="note">This run has no messages.</p> : !size ? <p class="note">No message yet at this point.</p> : null}
      {left > 0 && <p class="to-come">{plural(left, "message comes", "messages come")} later. <button type="button" class="next" onClick={() => model.go(shown[size])}>Next message</button></p>}
    </Panel>
  );
}
