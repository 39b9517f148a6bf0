// Data over HTTP from `hansard up --http`.

import { share, type Open } from "./shared";
import { Problem, queryText, type Answer, type Listener, type Query, type Source } from "./source";

const HIDDEN_MS = 5_000; // until a tab that is not seen gives its stream up
const RETRY_MS = [500, 1_000, 2_000, 5_000, 10_000]; // between attempts to follow a stream

// The caller, as the server knows it.
export interface Me {
  operator: boolean;
  csrf: string; // sent with each write; another login has another one
  workspaces: string[];
}

export const whoAmI = (): Promise<Me> => request<Me>("/api/v1/me", {}).then(({ data }) => data);

async function problemOf(response: Response): Promise<Problem> {
  const text = await response.text();
  try {
    const facts = JSON.parse(text);
    const detail = facts.fact ?? facts.detail ?? "";
    return new Problem(response.status, facts.title ?? response.statusText, detail, facts.remedy ?? "", facts.value);
  } catch {
    return new Problem(response.status, response.statusText || `Status ${response.status}`, text.slice(0, 300));
  }
}

async function request<T>(address: string, init: RequestInit): Promise<Answer<T>> {
  let response: Response;
  try {
    response = await fetch(address, { credentials: "same-origin", ...init });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Problem(0, "No answer from the server", location.host, "Check that `hansard up --http` runs, then try again.");
  }
  if (!response.ok) throw await problemOf(response);
  const position = response.headers.get("Hansard-Position");
  return { data: response.status === 204 ? (null as T) : await response.json(), position: position === null ? null : Number(position) };
}

export class HttpSource implements Source {
  readonly kind = "http";
  reading = 0;

  constructor(readonly workspace: string, private readonly me: Promise<Me>) {}

  link(path: string, query?: Query): string {
    return `/api/v1/${encodeURIComponent(this.workspace)}${path}${queryText(query)}`;
  }

  async get<T>(path: string, query?: Query, signal?: AbortSignal): Promise<Answer<T>> {
    this.reading++;
    return request<T>(this.link(path, query), { signal }).finally(() => this.reading--);
  }

  async post<T>(path: string, body: unknown, key: string = crypto.randomUUID()): Promise<Answer<T>> {
    const headers = { "Content-Type": "application/json", "Idempotency-Key": key, "Hansard-CSRF": (await whoAmI()).csrf };
    return request<T>(this.link(path), { method: "POST", headers, body: JSON.stringify(body) });
  }

  // A tab that is not seen leaves its streams, and reads on from the last id when it is seen again.
  follow(path: string, query: Query, listener: Listener): () => void {
    let [last, timer, isEnded] = [String(query.after ?? ""), 0, false];
    let leave: (() => void) | null = null;
    const keep: Listener = {
      event: (name, data, id) => {
        last = name === "reload" ? "" : id || last;
        listener.event(name, data, id);
        if (name === "reload" && query.after === undefined) begin(); // all was read again: go on from now
      },
      state: (state) => listener.state(state),
    };
    const open: Open = (after, to) => this.stream(path, { ...query, after }, to);
    const begin = () => {
      leave = () => undefined;
      void this.login().then((login) => {
        if (!isEnded && leave) leave = share(`hansard ${login} ${this.link(path)}`, last, open, keep);
      });
    };
    const end = () => {
      clearTimeout(timer);
      leave?.();
      leave = null;
    };
    const look = () => {
      clearTimeout(timer);
      if (document.hidden) timer = window.setTimeout(end, HIDDEN_MS);
      else if (!leave) begin();
    };
    document.addEventListener("visibilitychange", look);
    if (!document.hidden) begin();
    return () => {
      isEnded = true;
      document.removeEventListener("visibilitychange", look);
      end();
    };
  }

  // Tabs share a stream if they have one login; without an answer each has its own.
  private async login(): Promise<string> {
    return this.me.then(({ csrf }) => csrf, () => crypto.randomUUID());
  }

  // EventSource reconnects by itself after most losses, with Last-Event-ID; after a refusal it does not,
  // and a new one begins after the last id.
  private stream(path: string, query: Query, listener: Listener): () => void {
    let [attempt, last, timer] = [0, "", 0];
    let opened: EventSource;
    const begin = () => {
      const now = (opened = new EventSource(this.link(path, last ? { ...query, after: last } : query)));
      now.onopen = () => {
        attempt = 0;
        listener.state("live");
      };
      now.onerror = () => {
        listener.state("waiting");
        if (opened !== now || now.readyState !== EventSource.CLOSED) return;
        timer = window.setTimeout(begin, RETRY_MS[Math.min(attempt++, RETRY_MS.length - 1)]);
      };
      for (const name of ["open", "rows", "runs", "reload"]) {
        now.addEventListener(name, (event) => {
          last = event.lastEventId || last;
          listener.event(name, event.data ? JSON.parse(event.data) : null, event.lastEventId);
        });
      }
    };
    begin();
    return () => {
      clearTimeout(timer);
      opened.close();
    };
  }
}
