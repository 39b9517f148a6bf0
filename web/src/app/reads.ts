// Reads of a source as hooks: the answer, the refusal, and whether a newer answer is on its way.

import { createContext } from "preact";
import { useContext, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Problem, queryText, type Listener, type Query, type Source } from "./source";

export const SourceContext = createContext<Source | null>(null);

export function useSource(): Source {
  const source = useContext(SourceContext);
  if (!source) throw new Error("a view is shown outside of its source");
  return source;
}

export interface Read<T> {
  data: T | null; // the newest answer: kept while a newer one is read
  query: Query; // that it answers, which may be an earlier one
  position: number | null;
  link: string | null; // to its JSON
  problem: Problem | null;
  loading: boolean;
  reload: () => void;
}

export const asProblem = (error: unknown): Problem =>
  error instanceof Problem ? error : new Problem(0, "This page failed", String(error), "Reload it.");

// Read a path whenever it, its query or `moment` changes; nothing while the path is null.
export function useRead<T>(path: string | null, query: Query = {}, moment = ""): Read<T> {
  const source = useSource();
  return source.now ? useHeld<T>(source, path, query) : useRequest<T>(source, path, query, moment);
}

function useHeld<T>(source: Source, path: string | null, query: Query): Read<T> {
  return useMemo(() => {
    const nothing = { data: null, query, position: null, link: null, problem: null, loading: false, reload: () => undefined };
    try {
      return path === null ? nothing : { ...nothing, data: source.now!<T>(path, query) };
    } catch (error) {
      return { ...nothing, problem: asProblem(error) };
    }
  }, [source, path, queryText(query)]);
}

function useRequest<T>(source: Source, path: string | null, query: Query, moment: string): Read<T> {
  const [count, setCount] = useState(0);
  const [state, setState] = useState<Omit<Read<T>, "reload" | "link">>({ data: null, query, position: null, problem: null, loading: path !== null });
  const key = path === null ? null : path + queryText(query);
  const of = useRef(path); // that the state is of
  if (path !== null && of.current !== path) {
    of.current = path;
    Object.assign(state, { data: null, problem: null }); // an answer of another path is never shown
  }
  useEffect(() => {
    if (path === null) return;
    const control = new AbortController();
    setState((now) => ({ ...now, problem: null, loading: true }));
    source.get<T>(path, query, control.signal).then(
      ({ data, position }) => control.signal.aborted || setState({ data, query, position, problem: null, loading: false }),
      (error) => control.signal.aborted || setState((now) => ({ ...now, problem: asProblem(error), loading: false })),
    );
    return () => control.abort();
  }, [source, key, count, moment]);
  return { ...state, link: path && source.link(path, state.query), loading: path !== null && state.loading, reload: () => setCount((now) => now + 1) };
}

// Reload an answer a moment after a change: further changes are gathered, also while a slow answer is on its way.
export function useReload(read: Read<unknown>, ms: number): () => void {
  const newest = useRef(read);
  const timer = useRef(0);
  newest.current = read;
  useEffect(() => () => clearTimeout(timer.current), []);
  const look = () => {
    timer.current = newest.current.loading ? window.setTimeout(look, ms) : 0;
    if (!timer.current) newest.current.reload();
  };
  return () => void (timer.current ||= window.setTimeout(look, ms));
}

// Follow a stream while the path is not null.
export function useStream(path: string | null, query: Query, listener: Listener): void {
  const source = useSource();
  const newest = useRef(listener);
  newest.current = listener;
  const key = path === null ? null : path + queryText(query);
  useEffect(() => {
    if (path === null) return;
    return source.follow(path, query, {
      event: (...args) => newest.current.event(...args),
      state: (state) => newest.current.state(state),
    });
  }, [source, key]);
}

// Writes of the page one after the other, and the refusal if there is one.
export function useWrite(): { act: (write: (source: Source) => Promise<unknown>) => Promise<void>; busy: boolean; problem: Problem | null } {
  const source = useSource();
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const act = async (write: (source: Source) => Promise<unknown>) => {
    setBusy(true);
    setProblem(null);
    await write(source).catch((error) => setProblem(asProblem(error)));
    setBusy(false);
  };
  return { act, busy, problem };
}
