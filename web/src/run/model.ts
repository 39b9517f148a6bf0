// One run on the page: its outline, the point that everything follows, and how it is read on.

import { batch, signal } from "@preact/signals";
import { createContext } from "preact";
import { useContext, useEffect, useRef, useState } from "preact/hooks";
import { query, setQuery } from "../app/place";
import { asProblem } from "../app/reads";
import { Problem, type Query, type Source } from "../app/source";
import type { EventAnswer } from "./answers";
import { TimeAxis } from "./axis";
import { eventShown } from "./shown";
import { BAD, Outline, type OutlinePage, type Rows } from "./outline";

const FIRST = 2_000; // rows read first: of a larger run those at the point, to show something soon
const BEFORE = 16; // positions before the point that are read with it
const PAGE = 50_000; // rows read at once after them
const [PAUSE_MS, WAIT_MS] = [50, 3_000]; // between looks at reads of the panels, and the longest wait for them
const POSITIONS = 60; // positions whose first words are read at once
const KEPT = 2_000; // newest events kept after they were read
export const SETTLE_MS = 100; // from a move until panels read the point
const FOLLOW_MS = 300; // the same, at least, while the newest event is followed
const READS = 6; // answers that are read at once while the point moves

export class RunModel {
  readonly outline = new Outline();
  readonly version = signal(0); // rises when rows were added
  readonly isReady = signal(false); // rows up to the point are here
  readonly isWhole = signal(false); // all rows up to the end of the read are here
  readonly reading = signal(0); // number of rows read, of a large run
  readonly worded = signal(0); // rises when first words were read
  readonly problem = signal<Problem | null>(null);
  readonly point = signal(-1);
  readonly settled = signal(""); // address of the point as panels read it, a moment later
  readonly find = signal(""); // the searched text, while the point is one of its matches
  readonly byTime = signal(false);
  readonly follows = signal(false); // the point is the newest event, and stays so
  readonly pin = signal<string>(""); // address of the other point of a comparison
  private readonly events = new Map<string, EventAnswer | Problem | Promise<EventAnswer | Problem>>();
  private readonly asked = new Set<number>(); // positions whose first words are being read
  private isStopped = false;
  private isMoved = false;
  private pending = -1;
  private isPending = false;
  private axisOf: { version: number; axis: TimeAxis } | null = null;

  constructor(readonly source: Source, readonly run: string) {
    this.byTime.value = query.peek().axis === "time";
    this.pin.value = query.peek().pin ?? "";
  }

  get path(): string {
    return `/runs/${encodeURIComponent(this.run)}`;
  }

  // ------------------------------------------------------------ reading

  private async page(query: Query): Promise<OutlinePage> {
    const path = `${this.path}/outline`;
    return this.source.now ? this.source.now<OutlinePage>(path) : (await this.source.get<OutlinePage>(path, query)).data;
  }

  // Read all rows. Of a large run those at the point are shown at once, and all others, without their first
  // words, take their place once they are here.
  async read(): Promise<void> {
    const { outline } = this;
    const address = query.peek().at;
    try {
      const first = await this.page({ limit: FIRST });
      if (first.next === null) outline.add(first.rows);
      else {
        const near = Number.parseInt(address ?? "", 10) - BEFORE;
        outline.add((await this.page(near >= 0 ? { after: near, limit: FIRST } : { part: "end", limit: FIRST })).rows);
        this.show(address === undefined ? outline.size - 1 : null, address);
        await this.panelsRead();
        await this.rest(new Outline());
      }
      if (this.isStopped) return;
      batch(() => {
        outline.end = Math.max(outline.end, first.position);
        if (outline.size) this.show(null, this.isMoved ? query.peek().at : address);
        this.isWhole.value = this.isReady.value = true;
      });
    } catch (error) {
      this.problem.value = asProblem(error);
    }
  }

  private show(point: number | null, address: string | undefined): void {
    batch(() => {
      this.version.value++;
      if (point === null) this.open(address);
      else this.point.value = point;
      this.pending = this.point.value;
      this.settled.value ||= this.outline.address(this.point.value);
      this.isReady.value = true;
    });
  }

  // The panels of the point read before all other rows do, which would keep the server busy.
  private async panelsRead(): Promise<void> {
    for (let waited = 0; waited < WAIT_MS && (waited < 2 * PAUSE_MS || this.source.reading); waited += PAUSE_MS) await new Promise((done) => setTimeout(done, PAUSE_MS));
  }

  private async rest(whole: Outline): Promise<void> {
    const read = (after: number | null) => (after === null || this.isStopped ? null : this.page({ after, limit: PAGE, words: false }));
    for (let next = read(0); next; this.reading.value = whole.size) {
      const page: OutlinePage = await next;
      next = read(page.next); // is on its way while these rows are added
      whole.add(page.rows);
      whole.end = page.position;
    }
    Object.assign(this.outline, whole); // in place: the parts of the view hold the object
  }

  // Read the first words of events that have none yet; of all events if none are named.
  async words(numbers?: number[]): Promise<void> {
    const { outline } = this;
    if (outline.hasWords || (numbers && !this.isWhole.peek())) return;
    if (!numbers) {
      for (let after: number | null = 0; after !== null && !this.isStopped; ) {
        const page: OutlinePage = await this.page({ after, limit: PAGE });
        outline.setWords(page.rows);
        after = page.next;
      }
      outline.hasWords = true;
    } else {
      const missing = numbers.filter((number) => outline.texts[number] === undefined).map((number) => outline.position[number]);
      const positions = [...new Set(missing)].filter((position) => !this.asked.has(position)).slice(0, POSITIONS);
      if (!positions.length) return;
      for (const position of positions) this.asked.add(position); // also of a refusal: it is not repeated
      outline.setWords((await this.page({ at: positions.join(",") })).rows);
    }
    this.worded.value++;
  }

  private open(address: string | undefined): void {
    const place = /^(\d+)(?:\.(\d+))?$/.exec(address ?? "");
    const at = place ? this.outline.at(Number(place[1]), place[2] === undefined ? Infinity : Number(place[2])) : this.follows.value ? this.outline.size - 1 : this.opening();
    this.point.value = Math.max(0, at);
    this.isMoved ||= place !== null;
  }

  // Initial point: the first failure of a run that did not complete, else the end.
  private opening(): number {
    const { outline } = this;
    const last = outline.size - 1;
    const life = outline.agentNamed("life");
    let status = "";
    for (let number = last; life && number >= 0 && !status; number--) if (outline.agentOf(number) === life) status = outline.statusOf(number);
    if (status === "completed" || status === "open") return last;
    const bad = this.troubles().flatMap(([, items]) => items.map((item) => outline.last[item]));
    return bad.length ? bad.reduce((least, number) => Math.min(least, number)) : last;
  }

  // Steps without a good outcome at the end, by status.
  troubles(): [string, number[]][] {
    const { outline } = this;
    const out = new Map<string, number[]>([...BAD].map((status) => [status, []]));
    for (let item = 0; item < outline.items; item++) {
      if (outline.kind[item] === 2) out.get(outline.statusOf(outline.last[item]))?.push(item);
    }
    return [...out].filter(([, items]) => items.length);
  }

  // Rows that were recorded since: the point stays at the end if it is followed.
  add(rows: Rows): void {
    this.outline.add(rows);
    this.outline.end = Math.max(this.outline.end, rows.position.at(-1) ?? 0);
    this.version.value++;
    if (this.follows.value) this.go(this.outline.size - 1, "", true);
  }

  // Read what was recorded since, after a stream that fell behind.
  async more(): Promise<void> {
    for (let after: number | null = this.outline.end; after !== null && !this.isStopped; ) {
      const page: OutlinePage = await this.page({ after, limit: PAGE });
      this.add(page.rows);
      this.outline.end = Math.max(this.outline.end, page.position);
      after = page.next;
    }
  }

  stop(): void {
    this.isStopped = true;
  }

  // ------------------------------------------------------------ the point

  go(number: number, find = "", isFollowing = false): void {
    if (!this.outline.size || this.isStopped) return;
    this.pending = Math.max(0, Math.min(this.outline.size - 1, number));
    this.find.value = find;
    this.isMoved = true;
    if (!isFollowing) this.follows.value = false;
    if (this.isPending) return;
    this.isPending = true;
    requestAnimationFrame(() => {
      this.isPending = false;
      if (this.isStopped) return; // the address is another view's
      this.point.value = this.pending;
      setQuery({ at: this.follows.value ? "" : this.outline.address(this.pending) });
    });
  }

  // The point that the next frame shows.
  get target(): number {
    return this.isPending ? this.pending : this.point.peek();
  }

  goTo(address: string): void {
    const [position, index] = address.split(".").map(Number);
    this.go(this.outline.at(position, index ?? Infinity));
  }

  // The address that panels read: at once where the source holds its answers.
  get at(): string {
    return this.source.now ? this.outline.address(this.point.value) : this.settled.value;
  }

  // A point for reads: none for the newest event, also while it is followed, which is read as of now.
  asOf(address: string): string | undefined {
    const isNow = !this.source.now && this.isWhole.value && (this.follows.value || address === this.outline.address(this.outline.size - 1));
    return isNow ? undefined : address;
  }

  // The end of the commit after or before a point.
  commitEnd(from: number, step: 1 | -1): number {
    const { outline } = this;
    for (let number = from + step; number >= 0 && number < outline.size; number += step) {
      if (outline.lastOfCommit(number) === number) return number;
    }
    return step < 0 ? 0 : outline.size - 1;
  }

  get axis(): TimeAxis {
    const version = this.version.peek();
    if (this.axisOf?.version !== version) this.axisOf = { version, axis: new TimeAxis(this.outline) };
    return this.axisOf.axis;
  }

  setPin(address: string): void {
    this.pin.value = address;
    setQuery({ pin: address });
  }

  // ------------------------------------------------------------ events in full

  // An event, or the refusal, which is kept until `retry`.
  event(address: string): EventAnswer | Problem | Promise<EventAnswer | Problem> {
    const known = this.events.get(address);
    if (known) return known;
    const path = `${this.path}/events/${encodeURIComponent(address)}`;
    try {
      if (this.source.now) return this.source.now<EventAnswer>(path);
    } catch (error) {
      return asProblem(error);
    }
    const read = this.source.get<EventAnswer>(path).then(({ data }) => eventShown(data)).catch(asProblem).then((event) => {
      this.events.set(address, event);
      return event;
    });
    this.events.set(address, read);
    if (this.events.size > KEPT) this.events.delete(this.events.keys().next().value!);
    return read;
  }

  retry(): void {
    for (const [address, event] of this.events) if (event instanceof Problem) this.events.delete(address);
    this.version.value++;
  }

  // The list that a step recorded under a name, in full; null if a part is missing.
  async list(agent: string, step: number, name: string): Promise<unknown[] | null> {
    const parts: { count: number; items: unknown[] }[] = [];
    const seen = new Set<number>();
    for (let at = step; ; ) {
      const item = this.outline.agentNamed(agent)?.steps[at];
      if (item === undefined || seen.has(at)) return null;
      seen.add(at);
      const facts = await this.event(this.outline.address(this.outline.first[item]));
      if (facts instanceof Problem) throw facts;
      const value = facts.data.arguments?.[name];
      if (value?.$append) {
        parts.push(value.$append);
        at = value.$append.to;
        continue;
      }
      if (!Array.isArray(value)) return null;
      return parts.reverse().reduce<unknown[]>((list, part) => list.slice(0, part.count).concat(part.items), value);
    }
  }
}

export const ModelContext = createContext<RunModel | null>(null);

export function useModel(): RunModel {
  const model = useContext(ModelContext);
  if (!model) throw new Error("a part of a run is shown outside of it");
  return model;
}

// Let the panels of a run follow its point a moment later, so that a moving point is read now and then. While
// the newest event is followed they read again once all answers are here, after twice the time that these took.
export function useSettling(model: RunModel): void {
  const { settled, follows } = model;
  const address = model.outline.address(model.point.value);
  const newest = useRef(address);
  const timer = useRef(0);
  const took = useRef(0); // pauses until all answers were here
  newest.current = address;
  useEffect(() => {
    if (settled.value === address || timer.current) return;
    const wait = (pauses: number, tries = 0) => void (timer.current = window.setTimeout(settle, follows.peek() ? pauses * FOLLOW_MS : SETTLE_MS, tries));
    const settle = (tries: number) => {
      if (model.source.reading >= (follows.peek() ? 1 : READS)) return wait(1, tries + 1);
      timer.current = 0;
      took.current = tries;
      settled.value = newest.current;
    };
    wait(1 + 2 * took.current);
  }, [address, settled.value]);
  useEffect(() => () => clearTimeout(timer.current), []);
}

// Events in full by their addresses: those that are here, and null for others that are read.
export function useEvents(addresses: string[]): (EventAnswer | Problem | null)[] {
  const model = useModel();
  const [, redraw] = useState(0);
  const answers = addresses.map((address) => model.event(address));
  const waiting = answers.filter((each) => each instanceof Promise);
  useEffect(() => {
    let isLeft = false;
    if (waiting.length) void Promise.all(waiting).then(() => isLeft || redraw((now) => now + 1));
    return () => {
      isLeft = true;
    };
  }, [addresses.join(" "), waiting.length]);
  return answers.map((each) => (each instanceof Promise ? null : each));
}
