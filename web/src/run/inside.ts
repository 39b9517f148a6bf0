// Data inside a file: the run as recorded (`hansard.inspect.page`). Nothing is folded here: each event holds
// its changes of the state, and the state at a point is given by the events up to it.

import { Problem, type Query, type Source } from "../app/source";
import { differences, eachWord, firstWords, inLine, moment, preview } from "../ui/text";
import type { AgentFigures, BoardAnswer, Change, ContextAnswer, EventAnswer, Key, Life, Message, RunAnswer, Task, TasksAnswer } from "./answers";
import { upTo, type Rows } from "./outline";

type Fields = Record<string, any>;
type SharedChange = [number, number, Fields];

export interface FileData {
  format: number;
  run: string;
  log: string;
  runs: string[];
  streams: { name: string; run: number; agent?: string; role?: string }[];
  types: Record<string, string[]>;
  statuses: string[];
  actors: string[];
  commits: Record<"position" | "time" | "stream" | "version" | "events" | "clock" | "actor" | "epoch" | "whole", number[]> & { id: string[]; more: Record<string, Fields> };
  events: { type: number[]; id: string[]; data: any[][]; status: number[]; occurred_at: Record<string, string>; when: Record<string, number | null> };
  life: [number, Fields][];
  agents: Record<string, [number, Fields][]>;
  shared: { keys: string[]; board: SharedChange[]; names: string[]; tasks: SharedChange[] };
  blobs: Record<string, unknown>;
  absent: Record<string, string>;
}

const FORMAT = 2;
const IMPORTER = "import";
const TASK_VALUES = ["what", "given", "result"];
const MESSAGES = new Set(["message.added.v1", "context.compacted.v1"]);
// Changes of a program's own aggregates and of memory are listed under the step that made them.
const BY_STEPS = new Set(["aggregate.changed.v1", "memory.changed.v1", "memory.rejected.v1"]);

interface Row {
  name: string;
  now: any; // fields, with `written`: the event that set the value
  at: number; // the event that changed it last
  gone: string; // the reason of its removal
  isNew: boolean;
}

// Rows by number up to a point. They are changed in place by the next point: do not keep them.
function replay(names: string[], changes: SharedChange[], change: (now: any, facts: Fields, number: number, isFresh: boolean) => void) {
  let rows: Row[] = [];
  let next = 0; // the first change not applied to the rows
  return (point: number): Row[] => {
    if (next && changes[next - 1][0] > point) [rows, next] = [[], 0];
    for (; next < changes.length && changes[next][0] <= point; next++) {
      const [number, name, facts] = changes[next];
      const row = (rows[name] ??= { name: names[name], gone: "not yet", now: null, at: 0, isNew: true });
      const isNew = row.gone !== "";
      Object.assign(row, { at: number, isNew, gone: facts.gone ?? "" });
      if (row.gone) continue;
      if (isNew) row.now = Object.create(null);
      change(row.now, facts, number, isNew || "kind" in facts);
    }
    return rows;
  };
}

const changeOf = (row: Row, point: number): Key["change"] =>
  row.at !== point ? "" : row.gone ? (row.gone as Key["change"]) : row.isNew ? "new" : "changed";

export class InsideSource implements Source {
  readonly kind = "file";
  readonly reading = 0;
  readonly workspace: string;
  readonly size: number;
  private readonly types: [string, string[]][];
  private readonly rowOf: Int32Array; // the commit of an event
  private readonly indexOf: Int32Array; // its place in the commit
  private readonly position: number[] = [];
  private readonly timeOf: number[] = [];
  private readonly firstOf: number[] = [];
  private readonly agents = new Map<string, { name: string; role: string; events: number[]; steps: { number: number; events: number[] }[]; byStep: Map<number, { number: number; events: number[] }>; messages: number[]; checkpoints: [number, string][]; decisions: number[]; tokens: (number | null)[]; isCompacted: boolean }>();
  private readonly boardAt: (point: number) => Row[];
  private readonly tasksAt: (point: number) => Row[];
  private readonly byId = new Map<string, number>();
  private haystacks: [string, string][] = [];

  constructor(readonly data: FileData) {
    if (data.format !== FORMAT) throw new Error(`this page's data has format ${data.format}, not ${FORMAT}`);
    this.workspace = data.log;
    this.size = data.events.id.length;
    this.types = Object.entries(data.types);
    this.rowOf = new Int32Array(this.size);
    this.indexOf = new Int32Array(this.size);
    let [number, at, time] = [0, 0, 0];
    for (let row = 0; row < data.commits.id.length; row++) {
      this.position.push((at += data.commits.position[row]));
      this.timeOf.push((time += data.commits.time[row]));
      this.firstOf.push(number);
      for (let index = 0; index < data.commits.events[row]; index++, number++) {
        this.rowOf[number] = row;
        this.indexOf[number] = index;
      }
    }
    for (let each = 0; each < this.size; each++) this.take(each);
    this.boardAt = replay(data.shared.keys, data.shared.board, (...facts) => this.changeKey(...facts));
    this.tasksAt = replay(data.shared.names, data.shared.tasks, (now, facts, number) => {
      for (const [name, value] of Object.entries(facts)) now[name] = TASK_VALUES.includes(name) ? (this.fields(number)[name] ?? null) : value;
    });
  }

  // Content of a key after a change. Growing content is one list or object that is appended to, so it is
  // always a copy of the file's own.
  private changeKey(now: any, { value: [what, content], ...facts }: Fields, number: number, isFresh: boolean): void {
    Object.assign(now, facts);
    if (facts.version) now.written = number;
    if (isFresh) now.value = now.kind === "union" ? Object.create(null) : [];
    if (what === "of") now.value = this.fields(content ?? number).value ?? null;
    else if (what === "is" && now.kind === "union") now.value = Object.assign(Object.create(null), content);
    else if (what === "is") now.value = Array.isArray(content) ? [...content] : content;
    else if (what === "set") Object.assign(now.value, content);
    else if (what === "push") now.value.push(this.fields(number).item ?? null);
    else if (what === "in") now.value.splice(content, 0, this.fields(number).item ?? null);
    else if (what === "out") now.value.splice(content, 1);
    else throw new Error(`a change of a value is ${what}, which this page does not know`);
  }

  private take(number: number): void {
    this.byId.set(this.data.events.id[number], number);
    const stream = this.streamOf(number);
    if (stream.agent === undefined) return;
    let agent = this.agents.get(stream.name);
    if (!agent) {
      agent = { name: stream.agent, role: stream.role ?? "", events: [], steps: [], byStep: new Map(), messages: [], checkpoints: [], decisions: [], tokens: [null], isCompacted: false };
      this.agents.set(stream.name, agent);
    }
    agent.events.push(number);
    const type = this.typeOf(number);
    const facts = this.fields(number);
    if (type.startsWith("step.")) {
      let step = agent.byStep.get(facts.step);
      if (type === "step.requested.v1" || !step) {
        step = { number: facts.step, events: [] };
        agent.byStep.set(facts.step, step);
        agent.steps.push(step);
      }
      step.events.push(number);
    } else if (MESSAGES.has(type)) {
      agent.messages.push(number);
      const isSummary = type === "context.compacted.v1";
      agent.isCompacted ||= isSummary;
      const before = agent.tokens.at(-1)!;
      agent.tokens.push(facts.tokens === undefined || isSummary ? before : (before ?? 0) + facts.tokens);
    } else if (type === "checkpoint.saved.v1") agent.checkpoints.push([number, facts.name]);
    else if (type === "decision.made.v1") agent.decisions.push(number);
  }

  // ------------------------------------------------------------ one event

  private streamOf = (number: number) => this.data.streams[this.data.commits.stream[this.rowOf[number]]];
  private typeOf = (number: number) => this.types[this.data.events.type[number]][0];
  private versionOf = (number: number) => this.data.commits.version[this.rowOf[number]] + this.indexOf[number];
  private more = (number: number): Fields => this.data.commits.more[this.rowOf[number]] ?? {};
  private address = (number: number) => `${this.position[this.rowOf[number]]}.${this.indexOf[number]}`;
  private actor = (number: number) => this.data.actors[this.data.commits.actor[this.rowOf[number]]];
  private isImported = (number: number) => this.actor(number) === IMPORTER && "on_behalf_of" in this.more(number);
  private statusAfter = (number: number) => this.data.statuses[this.data.events.status[number]] ?? "";

  // An event's fields by name; omitted ones have their defaults.
  fields(number: number): Fields {
    const values = this.data.events.data[number];
    const names = this.types[this.data.events.type[number]][1];
    const out: Fields = Object.create(null);
    for (let i = 0; i < values.length; i++) if (values[i] !== null) out[names[i]] = values[i];
    return out;
  }

  private numberOf(text: string): number {
    const place = /^(\d+)(?:\.(\d+))?$/.exec(text);
    if (!place) {
      const known = this.byId.get(text);
      if (known !== undefined) return known;
      throw new Problem(404, "No such event", text, "Give the address or the id of an event of this run.");
    }
    const row = upTo(this.position, Number(place[1])) - 1;
    if (row < 0) return 0;
    const last = this.firstOf[row] + this.data.commits.events[row] - 1;
    const isInside = place[2] !== undefined && this.position[row] === Number(place[1]);
    return isInside ? Math.min(this.firstOf[row] + Number(place[2]), last) : last;
  }

  private event(number: number): EventAnswer {
    const { commits, events, runs } = this.data;
    const [row, stream, more] = [this.rowOf[number], this.streamOf(number), this.more(number)];
    const isImported = this.isImported(number);
    const last = this.firstOf[row] + commits.events[row] - 1;
    const { origin, on_behalf_of, transaction, ...rest } = more;
    return {
      address: this.address(number),
      id: events.id[number],
      type: this.typeOf(number),
      time: isImported ? null : moment(this.timeOf[row]),
      written: moment(this.timeOf[row] + commits.clock[row]),
      occurred_at: events.occurred_at[number] ?? null,
      recorded_in: runs[stream.run],
      stream: stream.name,
      version: this.versionOf(number),
      agent: this.actor(number),
      on_behalf_of: on_behalf_of ?? [],
      epoch: commits.epoch[row],
      commit: commits.id[row],
      events: commits.events[row],
      transaction: transaction ?? null,
      is_inside: number !== last || commits.whole[row] !== 0,
      origin: origin ?? null,
      more: { ...rest, "log time": moment(this.timeOf[row]) },
      data: this.fields(number),
    };
  }

  unblobbed(value: any): any {
    const sha256 = value?.$blob?.sha256;
    return typeof sha256 === "string" && Object.hasOwn(this.data.blobs, sha256) ? this.data.blobs[sha256] : value;
  }

  // ------------------------------------------------------------ outline

  private saver(number: number) {
    for (const agent of this.agents.values()) if (agent.name === this.actor(number)) return agent;
    return null;
  }

  rows(): Rows {
    const [agents, types, statuses, names] = [new Map<string, number>(), this.types.map(([name]) => name), new Map<string, number>(), new Map<string, number>()];
    const placeIn = (map: Map<string, number>, name: string) => {
      if (!map.has(name)) map.set(name, map.size);
      return map.get(name)!;
    };
    const rows: Rows = { position: [], index: [], time: [], agent: [], type: [], step: [], status: [], name: [], text: [], to: {}, parent: {}, took: {}, branch: {}, when: this.data.events.when, agents: [], types, statuses: [], names: [] };
    for (let number = 0; number < this.size; number++) {
      const [row, facts, type, stream] = [this.rowOf[number], this.fields(number), this.typeOf(number), this.streamOf(number)];
      rows.position.push(this.position[row]);
      rows.index.push(this.indexOf[number]);
      rows.time.push(this.timeOf[row]);
      rows.agent.push(placeIn(agents, stream.agent ?? this.saver(number)?.name ?? "life"));
      rows.type.push(this.data.events.type[number]);
      rows.status.push(placeIn(statuses, this.statusAfter(number)));
      const step = BY_STEPS.has(type) && !this.saver(number)?.byStep.has(facts.step) ? null : (facts.step ?? null);
      rows.step.push(typeof step === "number" ? step : null);
      const [name, text] = this.words(type, facts);
      rows.name.push(placeIn(names, name));
      rows.text.push(text);
      if (typeof facts.parent === "number") rows.parent![number] = facts.parent;
      if (facts.duration_ms) rows.took![number] = facts.duration_ms;
      if (type === "step.requested.v1") {
        const branch = this.branches(stream.name, facts);
        if (branch.length) rows.branch![number] = branch;
      }
      const to = facts.to ?? (type === "mail.sent.v1" || type.startsWith("task.") ? facts.agent : undefined);
      if (typeof to === "string") rows.to[number] = to;
    }
    return { ...rows, agents: [...agents.keys()], statuses: [...statuses.keys()], names: [...names.keys()] };
  }

  // The branches around a step: the part of its scope outside of its parent's body.
  private branches(stream: string, facts: Fields): string[] {
    const scope: string = facts.scope ?? "";
    const parent = this.agents.get(stream)?.byStep.get(facts.parent);
    const outer = parent && this.fields(parent.events[0]).call;
    const own = outer && scope.startsWith(outer) ? scope.slice(outer.length) : scope;
    return own.split("/").filter((part) => part !== "");
  }

  // Name and first words, which begin with the name, as of `hansard.inspect.outline`.
  private words(type: string, facts: Fields): [string, string] {
    const named = (name: unknown, ...rest: string[]): [string, string] => [inLine(String(name)), inLine(String(name)) + rest.join("")];
    if (type === "step.requested.v1") return named(facts.tool ?? "step", "(", preview(facts.arguments ?? {}), ")");
    if (MESSAGES.has(type)) return named(facts.role ?? "message", ": ", firstWords(facts, (item) => this.unblobbed(item)));
    if (type === "decision.made.v1") return named(facts.question ?? "decision", ` → ${inLine(String(facts.selected ?? ""))}`);
    if (type === "checkpoint.saved.v1") return named(facts.name ?? "checkpoint", "  ", preview(facts.data ?? null));
    if (type === "aggregate.changed.v1") return named(facts.event ?? "", "  ", `${facts.aggregate} ${preview(facts.state)}`);
    if (type === "step.settled.v1") return ["", [facts.by, facts.because].filter(Boolean).map((text) => inLine(String(text))).join("  ")];
    return ["", type.startsWith("step.") ? "" : preview({ ...facts })];
  }

  // ------------------------------------------------------------ states

  private changed(changes: [number, Fields][], point: number): Fields {
    const out: Fields = Object.create(null);
    for (const [number, values] of changes) if (number <= point) Object.assign(out, values);
    return out;
  }

  private run(point: number): RunAnswer {
    const life = this.changed(this.data.life, point);
    const roster: Record<string, string> = Object.create(null);
    for (const [number, { joined }] of this.data.life) if (joined && number <= point) roster[joined[0]] = joined[1];
    const first = [...Array(this.size).keys()].find((number) => this.isImported(number));
    const hasTimes = Object.keys(this.data.events.occurred_at).length > 0;
    const isImported = this.size > 0 && this.isImported(point);
    const run: Life = {
      run: this.data.run,
      log: this.data.log,
      position: this.position[this.rowOf[point]],
      time: isImported ? null : moment(this.timeOf[this.rowOf[point]], true),
      workflow: life.workflow ?? "",
      status: life.status ?? "unknown",
      program: life.program,
      conversation: life.conversation_id,
      labels: life.labels ?? {},
      assigned: life.assigned,
      scores: life.scores ?? {},
      error: life.error,
      forked: life.forked,
      agents: roster,
      at_work: life.missing ?? [],
      imported: first === undefined ? null : { at: moment(this.timeOf[this.rowOf[first]], true), hasTimes },
    };
    return { run, agents: [...this.agents.keys()].map((stream) => this.figures(stream, point)).filter((each) => each !== null) };
  }

  private figures(stream: string, point: number): AgentFigures | null {
    const agent = this.agents.get(stream)!;
    const version = upTo(agent.events, point);
    if (!version) return null;
    const steps: Record<string, number> = {};
    const open = [];
    for (const step of agent.steps) {
      if (step.events[0] > point) break;
      const status = this.statusAfter(step.events[upTo(step.events, point) - 1]);
      steps[status] = (steps[status] ?? 0) + 1;
      if (status === "requested" || status === "in_doubt") open.push({ step: `${agent.name}#${step.number}`, tool: this.fields(step.events[0]).tool ?? "step", status });
    }
    const fields = this.changed(this.data.agents[stream] ?? [], point);
    const messages = upTo(agent.messages, point);
    const checkpoints: Record<string, unknown> = Object.create(null);
    for (const [number, name] of agent.checkpoints) if (number <= point) checkpoints[name] = this.fields(number).data ?? null;
    return {
      agent: agent.name,
      role: agent.role,
      version: this.versionOf(agent.events[version - 1]),
      left: fields.left ?? null,
      steps,
      open_steps: open,
      checkpoints,
      decisions: agent.decisions.slice(0, upTo(agent.decisions, point)).map((number) => this.fields(number) as AgentFigures["decisions"][0]),
      messages: agent.isCompacted ? this.window(stream, messages).length : messages,
      context_tokens: agent.tokens[messages],
    };
  }

  // Content of a context window: a summary in place of the messages that it replaces.
  private window(stream: string, size: number): number[] {
    const agent = this.agents.get(stream)!;
    let window: number[] = [];
    for (const number of agent.messages.slice(0, size)) {
      if (this.typeOf(number) !== "context.compacted.v1") {
        window.push(number);
        continue;
      }
      const ranges: [number, number][] = this.fields(number).versions ?? [];
      const isGone = (each: number) => ranges.some(([first, last]) => this.versionOf(each) >= first && this.versionOf(each) <= last);
      const place = Math.max(0, window.findIndex(isGone));
      window = window.filter((each) => !isGone(each));
      window.splice(place, 0, number);
    }
    return window;
  }

  private context(point: number, only: string): ContextAnswer {
    const messages: Record<string, Message[]> = Object.create(null);
    for (const [stream, agent] of this.agents) {
      if (only && agent.name !== only) continue;
      const window = this.window(stream, upTo(agent.messages, point));
      messages[agent.name] = window.map((number) => {
        const { role, content, summary, fields, tokens, stands_for } = this.fields(number);
        const isSummary = this.typeOf(number) === "context.compacted.v1";
        return { kind: isSummary ? "summary" : "message", role, message: { role, content: content ?? summary ?? null, ...(fields ? { fields } : {}) }, tokens: tokens ?? null, position: this.position[this.rowOf[number]], version: this.versionOf(number), messages: stands_for?.length, address: this.address(number) };
      });
    }
    return { messages };
  }

  private board(point: number): BoardAnswer {
    const keys: Key[] = [];
    for (const row of this.boardAt(point)) {
      if (!row || (row.gone && row.at !== point)) continue;
      const { now } = row;
      const change = changeOf(row, point);
      if (row.gone) keys.push({ key: row.name, kind: null, version: 0, author: "", role: "", labels: {}, expires: null, value: null, change });
      else keys.push({ key: row.name, kind: now.kind, version: now.version, author: now.author, role: now.role ?? "", labels: now.labels ?? {}, expires: now.expires ?? null, value: now.value, address: this.address(now.written), change });
    }
    return { keys, isEver: this.data.shared.keys.length > 0 };
  }

  private tasks(point: number): TasksAnswer {
    const tasks: Record<string, Task> = Object.create(null);
    const now = this.timeOf[this.rowOf[point]];
    for (const row of this.tasksAt(point)) {
      if (!row) continue;
      const left = row.now.status === "claimed" ? (row.now.expires - now) / 1e6 : null;
      tasks[row.name] = { id: row.name, ...row.now, lease_left_s: left, change: changeOf(row, point) };
    }
    return { tasks, isEver: this.data.shared.names.length > 0 };
  }

  private state(point: number): Record<string, unknown> {
    const { run, agents } = this.run(point);
    const { log, imported, position, time, run: name, ...life } = run;
    const board = Object.fromEntries(this.board(point).keys.filter((key) => key.kind !== null).map(({ address, change, key, ...rest }) => [key, rest]));
    const tasks = Object.fromEntries(Object.values(this.tasks(point).tasks).map(({ change, lease_left_s, id, ...rest }) => [id, rest]));
    const byName = Object.fromEntries(agents.map((each) => [each.agent, { ...each, window: this.context(point, each.agent).messages[each.agent].map(({ role, message }) => ({ role, content: message.content })) }]));
    return JSON.parse(JSON.stringify({ life, board, tasks, agents: byName }));
  }

  private haystack(number: number): [string, string] {
    return (this.haystacks[number] ??= (() => {
      const { data } = this;
      const texts = [this.typeOf(number), `${this.streamOf(number).agent ?? this.streamOf(number).name}@${this.versionOf(number)}`, data.events.occurred_at[number] ?? ""];
      const ids = [data.events.id[number], data.commits.id[this.rowOf[number]]];
      for (const [name, value] of Object.entries(this.fields(number))) {
        const parts = DIGESTS.has(name) ? ids : texts;
        eachWord(value, (word) => void parts.push(word), (item) => this.unblobbed(item));
      }
      return [texts.join("\n").toLowerCase(), ids.join("\n").toLowerCase()];
    })());
  }

  // Events that contain a text; ids and digests only from a length on, as their letters are random.
  private search(text: string): number[] {
    const find = text.toLowerCase();
    const out = [];
    for (let number = 0; number < this.size; number++) {
      const [texts, ids] = this.haystack(number);
      if (texts.includes(find) || (find.length >= ID_CHARACTERS && ids.includes(find))) out.push(number);
    }
    return out;
  }

  // ------------------------------------------------------------ the source

  now<T>(path: string, query: Query = {}): T {
    const [, , , what = "", id = ""] = path.split("/").map(decodeURIComponent);
    const point = query.at === undefined ? this.size - 1 : this.numberOf(String(query.at));
    const answers: Record<string, () => unknown> = {
      "": () => this.run(point),
      outline: () => ({ position: this.position.at(-1), next: null, rows: this.rows() }),
      events: () => this.event(this.numberOf(id)),
      context: () => this.context(point, String(query.agent ?? "")),
      board: () => this.board(point),
      tasks: () => this.tasks(point),
      search: () => ({ events: this.search(String(query.q)) }),
      changes: () => ({ changes: changesBetween(this.state(this.numberOf(String(query.since))), this.state(this.numberOf(String(query.to)))) }),
      blobs: () => this.blob(id),
    };
    const answer = path.startsWith("/runs/") ? answers[what] : undefined;
    if (!answer) throw new Problem(404, "Not in this file", path, "The file holds one run. `hansard up --http` serves the rest.");
    return answer() as T;
  }

  private blob(sha256: string): unknown {
    if (Object.hasOwn(this.data.blobs, sha256)) return this.data.blobs[sha256];
    throw new Problem(404, "It is not in this file", this.data.absent[sha256] ?? "its reference is not one of ours");
  }

  readonly get = refused;
  readonly post = refused;
  readonly follow = () => () => undefined;
  readonly link = () => null;
}

const refused = (): Promise<never> => Promise.reject(new Problem(405, "A file answers at once, and cannot be changed", "", "Open the run at `hansard up --http`."));
const ID_CHARACTERS = 8;
const DIGESTS = new Set(["call", "fingerprint", "digest", "scope", "head"]);

// Changes of the state between two points, each with its agent.
const changesBetween = (one: unknown, other: unknown): Change[] => differences(one, other).map(({ path, before, after }) => {
  const isAgents = path[0] === "agents";
  return { path: isAgents ? path.slice(2) : path, agent: isAgents ? String(path[1]) : null, change: before === undefined ? "added" : after === undefined ? "removed" : "changed", before, after };
});
