// The events of a run in order, in columns: one number an event and field, so that a million fit. Rows are
// added while they are read and while the run goes on; nothing here is folded from their content.

import { firsts } from "../ui/text";

export interface Rows {
  position: number[];
  index: number[];
  time: number[]; // us since 1970, of the log
  agent: number[];
  type: number[];
  step: (number | null)[];
  status: number[];
  name: number[]; // of the tool, question, checkpoint or role that the event is about
  text: string[]; // first words; none if they were not requested
  to: Record<string, string>; // receivers of hand-offs and messages, by row
  parent?: Record<string, number>; // number of the step around a step or fact, by row
  took?: Record<string, number>; // stated durations (ms) of outcomes, by row
  branch?: Record<string, string[]>; // branches between a step and the step around it, by row
  when?: Record<string, number | null>; // stated times that are not the log's, by row; null: none is stated
  agents: string[];
  types: string[];
  statuses: string[];
  names: string[];
}

export interface OutlinePage {
  position: number;
  next: number | null;
  rows: Rows;
}

export const KINDS = ["other", "message", "step", "run", "checkpoint", "decision"] as const;
export type Kind = (typeof KINDS)[number];
const KIND_OF: Record<string, number> = { "message.added": 1, "context.compacted": 1, "decision.made": 5, "checkpoint.saved": 4 };
export const BAD = new Set(["failed", "blocked", "in_doubt"]);
const OUTER = "life"; // lane of events that are no agent's

const grown = <T extends Float64Array | Int32Array | Uint16Array | Uint8Array>(array: T, size: number): T => {
  if (size <= array.length) return array;
  const next = new (array.constructor as new (length: number) => T)(Math.max(size, 2 * array.length, 1024));
  next.set(array as never);
  return next;
};

const COLUMNS = ["position", "index", "time", "agent", "type", "step", "status", "item", "next", "first", "last", "kind", "parent", "depth", "hasChild"] as const;

export class Agent {
  readonly steps: number[] = []; // item of a step, by the step's number
  readonly messages: number[] = []; // events, ascending, and those below
  readonly checkpoints: number[] = [];
  readonly decisions: number[] = [];
  constructor(readonly name: string, readonly number: number) {}
}

export class Outline {
  size = 0;
  position = new Float64Array(0);
  index = new Uint16Array(0);
  time = new Float64Array(0);
  agent = new Uint16Array(0); // lane: place in `agents`
  type = new Uint16Array(0);
  step = new Int32Array(0); // -1: none
  status = new Uint8Array(0);
  names: string[] = [];
  texts: (string | undefined)[] = []; // undefined: not read yet
  item = new Int32Array(0); // the item of an event
  next = new Int32Array(0); // the next event of its item; -1: none
  to = new Map<number, string>();
  when = new Map<number, number | null>();
  took = new Map<number, number>();
  branch = new Map<number, string[]>(); // by item
  types: string[] = [];
  statuses: string[] = [];
  agents: Agent[] = [];
  private lanes: string[] = []; // their names
  // Items: a step with its events, or one other event.
  items = 0;
  first = new Int32Array(0);
  last = new Int32Array(0);
  kind = new Uint8Array(0);
  parent = new Int32Array(0); // item; -1: none
  depth = new Uint8Array(0);
  hasChild = new Uint8Array(0);
  end = 0; // position up to which the run is read
  inherited = 0; // number of events that a fork has of its parents: those before its own first event
  hasWords = true; // of all events the first words are here
  readonly present = new Uint8Array(KINDS.length); // 1: a row of the kind is here
  private kinds: number[] = []; // by type
  private isNested = false;
  private orderOf: Int32Array | null = null;
  private rankOf: Int32Array | null = null;
  private agentNumbers = new Map<string, number>();
  private typeNumbers = new Map<string, number>();
  private statusNumbers = new Map<string, number>();

  private number(names: string[], numbers: Map<string, number>, name: string): number {
    let number = numbers.get(name);
    if (number === undefined) {
      number = names.length;
      names.push(name);
      numbers.set(name, number);
    }
    return number;
  }

  private lane(name: string): number {
    const number = this.number(this.lanes, this.agentNumbers, name);
    if (number === this.agents.length) this.agents.push(new Agent(name, number));
    return number;
  }

  agentNamed(name: string): Agent | undefined {
    const number = this.agentNumbers.get(name);
    return number === undefined ? undefined : this.agents[number];
  }

  private room(events: number): void {
    for (const name of COLUMNS) this[name] = grown(this[name], events) as never;
  }

  // Add rows after those that are here; rows that are here already are left out.
  add(rows: Rows): void {
    const types = rows.types.map((name) => this.number(this.types, this.typeNumbers, name));
    for (let at = this.kinds.length; at < this.types.length; at++) this.kinds.push(kindOf(this.types[at]));
    const statuses = rows.statuses.map((name) => this.number(this.statuses, this.statusNumbers, name));
    this.room(this.size + rows.position.length);
    this.orderOf = this.rankOf = null;
    for (let row = 0; row < rows.position.length; row++) {
      const [position, index] = [rows.position[row], rows.index[row]];
      const before = this.size - 1;
      if (before >= 0 && (position < this.position[before] || (position === this.position[before] && index <= this.index[before]))) continue;
      const number = this.size++;
      const type = types[rows.type[row]];
      const kind = this.kinds[type];
      const lane = this.lane(kind === 3 ? OUTER : rows.agents[rows.agent[row]] || OUTER);
      this.position[number] = position;
      this.index[number] = index;
      this.time[number] = rows.time[row];
      this.agent[number] = lane;
      this.type[number] = type;
      this.step[number] = rows.step[row] ?? -1;
      this.status[number] = statuses[rows.status[row]];
      this.names.push(rows.names[rows.name[row]]);
      this.texts.push(rows.text[row]);
      if (rows.text[row] === undefined) this.hasWords = false;
      this.next[number] = -1;
      if (kind === 3 && this.typeName(number) === "run.forked") this.inherited = number;
      if (rows.to?.[row] !== undefined) this.to.set(number, rows.to[row]);
      if (rows.took?.[row] !== undefined) this.took.set(number, rows.took[row]);
      if (rows.when && String(row) in rows.when) this.when.set(number, rows.when[row]);
      this.take(number, kind, this.agents[lane], rows.parent?.[row] ?? -1, rows.branch?.[row]);
    }
  }

  // Take the first words of rows that are here already.
  setWords(rows: Rows): void {
    for (let row = 0; row < rows.position.length; row++) {
      const number = this.at(rows.position[row], rows.index[row]);
      if (this.position[number] === rows.position[row] && this.index[number] === rows.index[row]) this.texts[number] = rows.text[row];
    }
  }

  private take(number: number, kind: number, agent: Agent, around: number, branch?: string[]): void {
    const step = this.step[number];
    const isStep = kind === 2;
    let item = isStep ? (agent.steps[step] ?? -1) : -1;
    if (item < 0 || this.typeName(number) === "step.requested") {
      item = this.items++;
      this.first[item] = this.last[item] = number;
      this.kind[item] = kind;
      this.present[kind] = 1;
      const parent = this.around(agent, kind, step, around);
      this.parent[item] = parent;
      this.depth[item] = Math.min(255, (parent < 0 ? 0 : this.depth[parent] + 1) + (branch?.length ?? 0));
      if (parent >= 0) {
        this.isNested = true;
        this.hasChild[parent] = 1;
      }
      if (branch?.length) this.branch.set(item, branch);
      if (isStep) agent.steps[step] = item;
    } else {
      this.next[this.last[item]] = number;
      this.last[item] = number;
    }
    this.item[number] = item;
    if (kind === 1) agent.messages.push(number);
    else if (kind === 4) agent.checkpoints.push(number);
    else if (kind === 5) agent.decisions.push(number);
  }

  // The item around a new one. A message names the step before it, and is listed beside that step.
  private around(agent: Agent, kind: number, step: number, around: number): number {
    if (kind === 2) return around >= 0 ? (agent.steps[around] ?? -1) : -1;
    const item = step >= 0 ? (agent.steps[step] ?? -1) : -1;
    return item >= 0 && kind === 1 ? this.parent[item] : item;
  }

  // Type without its version, such as "step.requested".
  typeName(number: number): string { return this.types[this.type[number]].replace(/\.v\d+$/, ""); }

  statusOf(number: number): string { return this.statuses[this.status[number]]; }

  agentOf(number: number): Agent { return this.agents[this.agent[number]]; }

  isAgents(number: number): boolean { return this.agents[this.agent[number]].name !== OUTER; }

  kindOfItem(item: number): Kind { return KINDS[this.kind[item]]; }

  address(number: number): string { return `${this.position[number]}.${this.index[number]}`; }

  // The event at an address: the last at or before it; with an index that exists exactly that one.
  at(position: number, index = Infinity): number {
    return firsts(this.size, (each) => this.position[each] < position || (this.position[each] === position && this.index[each] <= index)) - 1;
  }

  // The newest event of an item up to a point; -1 if it had not begun.
  newest(item: number, point: number): number {
    if (this.last[item] <= point) return this.last[item];
    let out = -1;
    for (let at = this.first[item]; at >= 0 && at <= point; at = this.next[at]) out = at;
    return out;
  }

  events(item: number): number[] {
    const out = [];
    for (let at = this.first[item]; at >= 0; at = this.next[at]) out.push(at);
    return out;
  }

  statusAt(item: number, point: number): string {
    const number = this.newest(item, point);
    return number < 0 ? "later" : this.statusOf(number);
  }

  // Items in the order of the tree: each after its parent, else in the order they began.
  get order(): Int32Array {
    if (this.orderOf) return this.orderOf;
    const out = new Int32Array(this.items);
    if (!this.isNested) for (let item = 0; item < this.items; item++) out[item] = item;
    else this.nest(out);
    return (this.orderOf = out);
  }

  private nest(out: Int32Array): void {
    const [child, sibling, tail] = [0, 1, 2].map(() => new Int32Array(this.items).fill(-1));
    for (let item = 0; item < this.items; item++) {
      const parent = this.parent[item];
      if (parent < 0) continue;
      if (child[parent] < 0) child[parent] = item;
      else sibling[tail[parent]] = item;
      tail[parent] = item;
    }
    let size = 0;
    const waiting: number[] = [];
    for (let root = 0; root < this.items; root++) {
      if (this.parent[root] >= 0) continue;
      for (let item = root; item >= 0; ) {
        out[size++] = item;
        if (child[item] >= 0) {
          if (item !== root && sibling[item] >= 0) waiting.push(sibling[item]);
          item = child[item];
        } else if (item !== root && sibling[item] >= 0) item = sibling[item];
        else item = waiting.pop() ?? -1;
      }
    }
  }

  // Place of each item in the order.
  get rank(): Int32Array {
    if (this.rankOf) return this.rankOf;
    const out = new Int32Array(this.items);
    this.order.forEach((item, place) => (out[item] = place));
    return (this.rankOf = out);
  }

  // Stated time of an event, us since 1970; null if none is stated.
  timeStated(number: number): number | null {
    const stated = this.when.get(number);
    return stated === undefined ? this.time[number] : stated;
  }

  // How much earlier an event's time is than that of the previous event (us), else 0.
  backBy(number: number): number {
    const [now, before] = number ? [this.timeStated(number), this.timeStated(number - 1)] : [null, null];
    return now === null || before === null ? 0 : Math.max(0, before - now);
  }

  // The last event of the commit of an event, and of its first.
  lastOfCommit(number: number): number {
    let at = number;
    while (at + 1 < this.size && this.position[at + 1] === this.position[number]) at++;
    return at;
  }
}

function kindOf(type: string): number {
  const name = type.replace(/\.v\d+$/, "");
  if (name.startsWith("step.")) return 2;
  if (name.startsWith("run.")) return 3;
  return KIND_OF[name] ?? 0;
}

// Number of ascending values that are at most a point.
export const upTo = (numbers: ArrayLike<number>, point: number): number => firsts(numbers.length, (place) => numbers[place] <= point);
