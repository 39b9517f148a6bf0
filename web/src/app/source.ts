// Where the page gets its data: over HTTP (http.ts), or from inside the file (inside.ts). Views know
// this interface only, and ask for paths as below /api/v1/WORKSPACE.

import { signal } from "@preact/signals";

// The caller is the operator, as the server states it: links to what a role may not use are not shown to others.
export const isOperator = signal(false);

export type Value = string | number | boolean | null | undefined;
export type Query = Record<string, Value>;

// Facts of a refusal, as in RFC 9457 with Hansard's fact, value and remedy.
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    readonly detail: string,
    readonly remedy = "",
    readonly value: unknown = undefined,
  ) {
    super(detail ? `${title}: ${detail}` : title);
  }
}

// An answer, and the position of the log as of which it holds; null if the server states none.
export interface Answer<T> {
  data: T;
  position: number | null;
}

export interface Listener {
  // An event of the stream: its name ("message" if it has none), its data and its id, a position.
  event(name: string, data: any, id: string): void;
  // The stream's state: "live", or "waiting" after a loss of the connection.
  state(state: "live" | "waiting"): void;
}

export interface Source {
  readonly kind: "http" | "file";
  readonly workspace: string;
  readonly reading: number; // answers of `get` that are on their way
  get<T>(path: string, query?: Query, signal?: AbortSignal): Promise<Answer<T>>;
  // The answer at once, where the source holds it.
  now?<T>(path: string, query?: Query): T;
  // Write once: the key makes a repeated request one write. A file refuses.
  post<T>(path: string, body: unknown, key?: string): Promise<Answer<T>>;
  // Follow a stream of events from after a position; returns how to stop. A file's stream is empty.
  follow(path: string, query: Query, listener: Listener): () => void;
  // Address of a path's answer for a link, such as raw bytes; null where there is no server.
  link(path: string, query?: Query): string | null;
}

// The values that are there, as texts.
export function present(query: Query): Record<string, string> {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return Object.fromEntries(pairs.map(([name, value]) => [name, String(value)]));
}

export function queryText(query: Query = {}): string {
  const text = new URLSearchParams(present(query)).toString();
  return text ? `?${text}` : "";
}
