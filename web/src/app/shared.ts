// One stream for all tabs of a browser. The tab that holds a lock reads it from the server, and passes its
// events to the other tabs; when it is closed, the next one holds the lock, and goes on after its last event.

import type { Listener } from "./source";

const KEPT = 256; // newest events that the reading tab can give to a tab that joins
const JOIN_MS = 3_000; // until a tab that gets no answer reads a stream of its own

type Passed = [name: string, data: any, id: string];
type Message =
  | { kind: "join"; tab: string; after: string } // to the reading tab
  | { kind: "joined"; tab: string; events: Passed[] | null; state: State | null } // null: it is too far behind
  | { kind: "reads" } // the sender reads from now on
  | { kind: "event"; event: Passed }
  | { kind: "state"; state: State };
type State = "live" | "waiting";

export type Open = (after: string, listener: Listener) => () => void;

const place = (id: string): number => (id ? parseInt(id, 10) : -1); // ids of a role have a suffix

export function share(name: string, after: string, open: Open, listener: Listener): () => void {
  if (!navigator.locks || !("BroadcastChannel" in globalThis)) return open(after, listener); // an insecure origin
  const channel = new BroadcastChannel(name);
  const tab = crypto.randomUUID();
  const control = new AbortController();
  let last = after;
  let [isJoined, isLeft] = [false, false];
  let close: (() => void) | null = null; // of the stream that this tab reads
  let release: (() => void) | null = null;
  let state: State | null = null;
  let timer = 0;
  const kept: Passed[] = [];
  let keptAfter = ""; // all events after this id are kept
  const post = (message: Message) => isLeft || channel.postMessage(message);

  const leave = () => {
    isLeft = true;
    clearTimeout(timer);
    control.abort();
    channel.close();
    close?.();
    release?.();
  };
  const deliver = ([event, data, id]: Passed) => {
    if (id && last && event !== "reload" && place(id) <= place(last)) return;
    last = id || last;
    if (event === "reload") leave();
    listener.event(event, data, id);
  };
  const take = (passed: Passed) => {
    if (passed[0] === "reload") return deliver(passed); // each tab reads on by itself
    if (kept.push(passed) > KEPT) keptAfter = kept.shift()![2] || keptAfter;
    deliver(passed);
    if (release) post({ kind: "event", event: passed });
  };
  const read = () => {
    clearTimeout(timer);
    isJoined = true;
    keptAfter = last;
    close = open(last, {
      event: (event, data, id) => {
        if (event === "open") keptAfter ||= id;
        take([event, data, id]);
      },
      state: (now) => {
        state = now;
        listener.state(now);
        if (release) post({ kind: "state", state: now });
      },
    });
  };
  const join = () => {
    isJoined = false;
    clearTimeout(timer);
    timer = window.setTimeout(() => close ?? (control.abort(), read()), JOIN_MS);
    post({ kind: "join", tab, after: last });
  };
  channel.onmessage = ({ data }: MessageEvent<Message>) => {
    if (data.kind === "join" && release) {
      const isKept = !data.after || (keptAfter !== "" && place(data.after) >= place(keptAfter));
      const events = data.after ? kept.filter(([, , id]) => place(id) > place(data.after)) : [];
      post({ kind: "joined", tab: data.tab, events: isKept ? events : null, state });
    } else if (close) return;
    else if (data.kind === "reads") join();
    else if (data.kind === "joined" && data.tab === tab) {
      clearTimeout(timer);
      isJoined = true;
      if (data.state) listener.state(data.state);
      if (data.events) [["open", null, ""] as Passed, ...data.events].forEach(deliver);
      else deliver(["reload", { after: place(last) }, ""]);
    } else if (isJoined && data.kind === "event") deliver(data.event);
    else if (isJoined && data.kind === "state") listener.state(data.state);
  };
  void navigator.locks
    .request(name, { signal: control.signal }, () => new Promise<void>((done) => {
      if (isLeft) return done();
      release = done;
      post({ kind: "reads" });
      read();
    }))
    .catch(() => undefined); // left before the lock was free
  join();
  return leave;
}
