// One run: one point, moved by slider, keys, rows, links and search; everything follows it.

import { computed, effect, signal, untracked } from "@preact/signals";
import type { ComponentChildren, ComponentType } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { isControl, useCommands } from "../app/keys";
import { address, go, query, setQuery } from "../app/place";
import { asProblem, useRead, useReload, useSource } from "../app/reads";
import { Ends, useLive, useTitle } from "../app/shell";
import { isOperator } from "../app/source";
import { isPrinting } from "../ui/list";
import { Empty, Facts, Failed, Rec, Tabs, Waiting, type Tab } from "../ui/pieces";
import { assignment, count, duration, inLine, moment, plural } from "../ui/text";
import { failureText } from "../ui/value";
import { RunQuestions } from "../views/ask/links";
import type { BoardAnswer, Life, RunAnswer, TasksAnswer } from "./answers";
import { ChangesPanel } from "./changes";
import { EventPanel } from "./event";
import { ModelContext, RunModel, useModel, useSettling } from "./model";
import { upTo, type Rows } from "./outline";
import { BoardPanel, ChatPanel, messagesOf, TasksPanel } from "./shared";
import { Scores, StatePanel } from "./state";
import { follow, setAxis, Timeline } from "./timeline";
import { searchOutline, Trace } from "./trace";

const PHONE = matchMedia("(max-width: 899px)");
const isPhone = signal(PHONE.matches);
PHONE.addEventListener("change", () => isPrinting.peek() || (isPhone.value = PHONE.matches)); // paper is narrow
addEventListener("afterprint", () => (isPhone.value = PHONE.matches));
const SEARCH_MS = 120; // after the last key

// ---------------------------------------------------------------- search

function Search() {
  const model = useModel();
  const { outline, source } = model;
  const [matches, setMatches] = useState<number[]>([]);
  const [at, setAt] = useState(-1);
  const [text, setText] = useState("");
  const [isReading, setReading] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const timer = useRef(0);
  const searched = useRef("");
  const to = (list: number[], index: number) => {
    const next = (index + list.length) % list.length;
    setAt(next);
    model.go(list[next], searched.current);
    if (isPhone.peek()) setQuery({ left: "detail" });
  };
  const search = (words: string) => {
    clearTimeout(timer.current);
    searched.current = words.trim().toLowerCase();
    setText(words);
    if (searched.current && !outline.hasWords) {
      setMatches([]);
      setReading(true);
      void model.words().then(() => searched.current === words.trim().toLowerCase() && search(words), (error) => (model.problem.value = asProblem(error))).finally(() => setReading(false));
      return;
    }
    const list = !searched.current ? [] : source.now ? source.now<{ events: number[] }>(`${model.path}/search`, { q: searched.current }).events : searchOutline(outline, searched.current);
    setMatches(list);
    setAt(-1);
    if (list.length) to(list, upTo(list, model.target - 1)); // after the last it is the first
    else if (model.find.peek()) model.go(model.target);
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "Enter") {
      event.preventDefault();
      if (matches.length && searched.current === input.current!.value.trim().toLowerCase()) to(matches, at + (event.shiftKey ? -1 : 1));
      else search(input.current!.value);
    } else if (event.key === "Escape") {
      event.preventDefault();
      input.current!.value = "";
      search("");
      input.current!.blur();
    }
  };
  useEffect(() => () => clearTimeout(timer.current), []);
  useCommands([{ title: "Search this run", keys: ["/"], run: () => input.current?.select(), group: "Run" }]);
  const none = matches.length === 0;
  return (
    <search class="search">
      <label for="query" class="unseen">Search tools, arguments, results and messages</label>
      <input ref={input} id="query" type="search" placeholder={source.now ? "Search everything" : "Search names and first words"} autocomplete="off" spellcheck={false} disabled={!model.isWhole.value} aria-keyshortcuts="/" onKeyDown={onKey} onInput={(event) => {
        const { value } = event.currentTarget;
        clearTimeout(timer.current);
        timer.current = window.setTimeout(() => search(value), SEARCH_MS);
      }} />
      <output id="found" for="query" aria-live="polite">{!text.trim() ? "" : isReading ? "reading…" : none ? "no match" : `${count(at + 1)} of ${count(matches.length)}`}</output>
      {isOperator.value && none && !isReading && text.trim() && <a class="small" href={address("/search", { q: text.trim(), run: model.run })}>Search payloads</a>}
      <button id="previous" type="button" aria-label="Previous match" title="Previous match (Shift+Enter)" disabled={none} onClick={() => to(matches, at - 1)}>↑</button>
      <button id="next" type="button" aria-label="Next match" title="Next match (Enter)" disabled={none} onClick={() => to(matches, at + 1)}>↓</button>
    </search>
  );
}

// Mark the visible matches in the event, and scroll to the first.
function markFound(find: string): void {
  if (!("highlights" in CSS)) return;
  CSS.highlights.delete("found");
  const box = document.getElementById("event");
  if (!find || !box) return;
  const ranges: Range[] = [];
  const walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode() as Text | null; node; node = walker.nextNode() as Text | null) {
    if (node.parentElement!.closest("details:not([open]) > :not(summary)")) continue;
    const text = node.data.toLowerCase();
    for (let at = text.indexOf(find); at >= 0 && ranges.length < 500; at = text.indexOf(find, at + find.length)) {
      const range = new Range();
      range.setStart(node, Math.min(at, node.length));
      range.setEnd(node, Math.min(at + find.length, node.length));
      ranges.push(range);
    }
  }
  if (!ranges.length) return;
  CSS.highlights.set("found", new Highlight(...ranges));
  const seen = ranges.find((range) => !range.startContainer.parentElement!.closest("summary")) ?? ranges[0];
  box.scrollTop += seen.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 3;
}

// ---------------------------------------------------------------- head

function importText(life: Life): string | null {
  if (!life.imported) return life.began && life.began.clock !== "log" ? `times by the source's clock (${life.began.clock})` : null;
  return `${life.imported.at}; ${life.imported.hasTimes ? "a missing time is one that the source does not give" : "its source gives no times"}`;
}

function lasted(model: RunModel): string {
  const { outline } = model;
  const [first, last] = [outline.inherited, outline.size - 1];
  if (last < 0 || outline.when.has(first) || outline.when.has(last)) return "";
  return duration((outline.time[last] - outline.time[first]) / 1000);
}

function Head({ read }: { read: RunAnswer | null }) {
  const model = useModel();
  const { outline, source } = model;
  const [version, isWhole] = [model.version.value, model.isWhole.value];
  const life = read?.run;
  const troubles = useMemo(() => (isWhole ? model.troubles() : []), [version, isWhole]);
  const [isOpen, setOpen] = useState(!isPhone.peek());
  const labels = Object.entries(life?.labels ?? {});
  const last = outline.size - 1;
  useTitle(life?.workflow && source.kind === "http" ? `${life.workflow} ${model.run.slice(-6)}` : model.run);
  const stored = life?.time ?? (outline.when.has(last) ? "" : moment(outline.time[last], true));
  return (
    <header id="head">
      <div class="title">
        <h1 id="workflow" class="rec">{inLine(life?.workflow || model.run)}</h1>
        {life && <span id="status" class={`pill ${life.status}`}>{life.status}</span>}
        <span id="troubles" class="chips" role="group" aria-label="Calls without a good outcome">
          {troubles.map(([status, items]) => (
            <button key={status} type="button" class={`pill ${status}`} title={`Go to the first of the calls that are ${status.replaceAll("_", " ")} at the end`} onClick={() => model.go(outline.last[items[0]])}>{count(items.length)} {status.replaceAll("_", " ")}</button>
          ))}
        </span>
        <Search />
        {source.kind === "file" && <Ends />}
      </div>
      <details id="about" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>About this run</summary>
        {life && <Facts pairs={[
          ["run", <Rec text={model.run} class="mono" />],
          ["as of", <span>position {count(outline.end || life.position)}{life.log && <> of log <Rec text={life.log} class="mono" /></>}{stored ? `, ${String(stored).slice(0, 19).replace("T", " ")}Z` : ""}</span>],
          ["observed", life.labels?.observed === "true" && !life.forked ? "spans of another program: no call was an intent, none can be replayed" : null],
          ["imported", importText(life)],
          ["fork of", life.forked && <span>{source.kind === "http" ? <a class="mono" href={address(`/runs/${encodeURIComponent(life.forked.parent)}`)}><Rec text={life.forked.parent} /></a> : <Rec text={life.forked.parent} class="mono" />} (effects {life.forked.effects ?? "shadow"})</span>],
          ["conversation", life.conversation],
          ["program", life.program],
          ["assigned", life.assigned && assignment(life.assigned)],
          ["scores", Object.keys(life.scores ?? {}).length > 0 && <Scores scores={life.scores} />],
          ["labels", labels.length ? <span class="chips">{labels.map(([name, value]) => <span key={name} class="chip"><Rec text={`${name}=${value}`} /></span>)}</span> : null],
          ["at work", life.at_work?.length ? `${life.at_work.join(", ")} (or killed)` : null],
          ["error", life.error && failureText(life.error)],
          ["lasted", isWhole && lasted(model)],
          ["questions", source.kind === "http" && <RunQuestions run={model.run} parent={life.forked?.parent} />],
        ]} />}
      </details>
    </header>
  );
}

// ---------------------------------------------------------------- panels

const LEFT = ["trace", "chat"];
const RIGHT = ["state", "board", "tasks", "changes"];
const NAMES: Record<string, string> = { trace: "Trace", chat: "Chat", detail: "Event", state: "State", board: "Board", tasks: "Tasks", changes: "Changes" };

const PANELS: Record<string, ComponentType<{ openEvent: (byKey?: boolean) => void }>> = { trace: Trace, chat: ChatPanel, detail: EventPanel, state: StatePanel, board: BoardPanel, tasks: TasksPanel, changes: ChangesPanel };

function Panel({ name, openEvent }: { name: string; openEvent: (byKey?: boolean) => void }) {
  const Named = PANELS[name];
  return <Named openEvent={openEvent} />;
}

// Sizes of the lists and what the event at the point changed, where the source holds them.
function useTabs(): (id: string) => Tab {
  const model = useModel();
  const { outline, source } = model;
  const [point, version] = [model.point.value, model.version.value];
  const at = source.now ? outline.address(point) : null;
  const board = useRead<BoardAnswer>(at && `${model.path}/board`, { at });
  const tasks = useRead<TasksAnswer>(at && `${model.path}/tasks`, { at });
  const messages = useMemo(() => {
    const { mail, window } = messagesOf(outline);
    return [...mail, ...window].sort((a, b) => a - b);
  }, [version]);
  const size = upTo(messages, point);
  const keys = board.data?.keys ?? [];
  const rows = Object.values(tasks.data?.tasks ?? {});
  const facts: Record<string, Partial<Tab>> = {
    chat: { size, news: size && messages[size - 1] === point ? "new here" : "" },
    board: { size: keys.filter((key) => key.kind !== null).length, news: keys.some((key) => key.change) ? "changed here" : "" },
    tasks: { size: rows.length, news: rows.some((row) => row.change) ? "changed here" : "" },
  };
  return (id) => ({ id, label: NAMES[id], ...facts[id] });
}

// The tabs alone are made again when the point moves.
function PanelTabs({ names, ...props }: { names: string[]; chosen: string; choose: (name: string) => void; label: string; prefix: string }) {
  const tabOf = useTabs();
  return <Tabs tabs={names.map(tabOf)} {...props} />;
}

function Group({ id, names, shown, label, openEvent }: { id: string; names: string[]; shown: string; label: string; openEvent: (byKey?: boolean) => void }) {
  return (
    <div id={id} class="group">
      <PanelTabs names={names} chosen={shown} choose={(name) => setQuery({ [id]: name === names[0] ? "" : name })} label={label} prefix="desk" />
      <Panel name={shown} openEvent={openEvent} />
    </div>
  );
}

const among = (name: string | undefined, names: string[]): string => (name && names.includes(name) ? name : names[0]);

const [leftOf, rightOf, atOf] = ["left", "right", "at"].map((name) => computed(() => query.value[name]));

function Panels() {
  const { source } = useModel();
  const [left, right] = [leftOf.value, rightOf.value];
  if (isPrinting.value && source.now) { // others would be printed while they are read: those shown are printed
    return <div class="panels">{["trace", "detail", ...RIGHT, "chat"].map((name) => <div key={name} class="group"><Panel name={name} openEvent={() => undefined} /></div>)}</div>;
  }
  if (isPhone.value) {
    const names = ["trace", "chat", "detail", "state", "board", "tasks", "changes"];
    const shown = among(left ?? right, names);
    const choose = (name: string) => setQuery({ left: name === names[0] ? "" : name, right: "" });
    return (
      <>
        <nav id="tabs" aria-label="Panels"><PanelTabs names={names} chosen={shown} choose={choose} label="Show" prefix="tab" /></nav>
        <div class="panels"><div class="group"><Panel name={shown} openEvent={() => choose("detail")} /></div></div>
      </>
    );
  }
  return (
    <div class="panels">
      <Group id="left" names={LEFT} shown={among(left, LEFT)} label="Trace or chat" openEvent={(byKey) => byKey && openEvent()} />
      <div class="group middle"><EventPanel /></div>
      <Group id="right" names={RIGHT} shown={among(right, RIGHT)} label="State, board, tasks or changes" openEvent={() => undefined} />
    </div>
  );
}

// ---------------------------------------------------------------- the run

function useMoves(model: RunModel): void {
  const { outline } = model;
  const to = (number: number) => model.go(number);
  const leap = Math.max(1, Math.ceil(outline.size / 20));
  const when = ({ target }: KeyboardEvent) => !(target instanceof Element && target.closest("[role=tablist], pre") !== null);
  const move = (title: string, keys: string[], place: () => number, isHidden = true) => ({ title, keys, group: "Run", isHidden, when, run: () => to(place()) });
  useCommands([
    move("Event before", ["ArrowLeft"], () => model.target - 1),
    move("Next event", ["ArrowRight"], () => model.target + 1),
    move("Commit before", ["Shift+ArrowLeft"], () => model.commitEnd(model.target, -1)),
    move("Next commit", ["Shift+ArrowRight"], () => model.commitEnd(model.target, 1)),
    move("First event", ["Home"], () => 0, false),
    move("Last event", ["End"], () => outline.size - 1, false),
    move("Back by a twentieth", ["PageUp"], () => model.target - leap),
    move("On by a twentieth", ["PageDown"], () => model.target + leap),
    move("Item before", ["k"], () => besides(model, -1)),
    move("Next item", ["j"], () => besides(model, 1)),
    { title: "Read the event", keys: ["Enter"], group: "Run", isHidden: true, when: ({ target }) => !isControl(target), run: openEvent },
    { title: "Back from the event to the list", keys: ["Escape"], group: "Run", isHidden: true, when: ({ target }) => target instanceof Element && target.closest("#event") !== null, run: closeEvent },
    { title: "Order or time", keys: ["t"], group: "Run", run: () => setAxis(model, !model.byTime.peek()) },
    { title: "Pin this point, to see what changes", keys: ["["], group: "Run", run: () => { model.setPin(outline.address(model.target)); setQuery(isPhone.peek() ? { left: "changes" } : { right: "changes" }); } },
    { title: "Go to the pin, and pin this point", keys: ["]"], group: "Run", run: () => {
      const [pin, here] = [model.pin.peek(), outline.address(model.target)];
      if (!pin) return;
      model.setPin(here);
      model.goTo(pin);
    } },
    ...(model.source.kind === "http" ? [{ title: "Follow the newest event", keys: ["f"], group: "Run", run: () => follow(model) }] : []),
    ...[...LEFT, ...RIGHT].map((name) => ({ title: `Show ${NAMES[name].toLowerCase()}`, group: "Run", run: () => setQuery(isPhone.peek() || LEFT.includes(name) ? { left: name } : { right: name }) })),
  ]);
}

// Show the event at the point, and let the keys scroll it.
function openEvent(): void {
  if (isPhone.peek()) setQuery({ left: "detail", right: "" });
  requestAnimationFrame(() => document.getElementById("event")?.focus({ preventScroll: true }));
}

function closeEvent(): void {
  if (isPhone.peek()) setQuery({ left: "", right: "" });
  requestAnimationFrame(() => document.getElementById("tree")?.focus());
}

// The end of the item after or before that of the point, in the order of the trace.
function besides(model: RunModel, step: number): number {
  const { outline } = model;
  const row = outline.rank[outline.item[model.target]] + step;
  return outline.last[outline.order[Math.max(0, Math.min(outline.items - 1, row))]];
}

function Opened({ model, children }: { model: RunModel; children: ComponentChildren }) {
  useMoves(model);
  useSettling(model);
  const [point, find] = [model.point.value, model.find.value];
  useLayoutEffect(() => {
    const frame = requestAnimationFrame(() => {
      markFound(find);
      document.documentElement.dataset.point = String(point);
    });
    return () => cancelAnimationFrame(frame);
  }, [point, find]);
  return <>{children}</>;
}

function Live({ model, changed, restart }: { model: RunModel; changed: () => void; restart: () => void }) {
  const [after, setAfter] = useState(model.outline.end);
  useLive(`${model.path}/live`, { after }, (name, data) => {
    if (name === "rows") {
      model.add(data as Rows);
      changed();
    } else if (name === "reload" && data.after > 0) {
      void model.more().then(() => setAfter(model.outline.end), (error) => (model.problem.value = asProblem(error)));
    } else if (name === "reload") restart();
  });
  return null;
}

const HEAD_MS = 1_500; // between reads of the head while a run goes on

export default function RunView({ run }: { run: string }) {
  const source = useSource();
  const [epoch, setEpoch] = useState(0); // rises when a role's view of the run is another one
  const model = useMemo(() => new RunModel(source, run), [source, run, epoch]);
  const read = useRead<RunAnswer>(model.isReady.value ? model.path : null, { agents: false });
  const reload = useReload(read, HEAD_MS);
  const id = read.data?.run?.run ?? run; // `last` is another run tomorrow: the address names this one
  useEffect(() => void (id !== run && go(`/runs/${encodeURIComponent(id)}`, query.peek(), { replace: true })), [id]);
  useEffect(() => {
    void model.read();
    return () => model.stop();
  }, [model]);
  useEffect(() => effect(() => { // not read by the view itself, which each move would make again
    const at = atOf.value;
    if (model.isReady.peek() && at && at !== model.outline.address(model.target)) untracked(() => model.goTo(at));
  }), [model]);
  const problem = model.problem.value ?? (read.data ? null : read.problem);
  if (problem && !model.isReady.value) return <div class="view"><h1>Run <Rec text={run} /></h1><Failed problem={problem} again={() => location.reload()} /></div>;
  if (!model.isReady.value) return <div class="view"><Waiting what="Reading the run" /></div>;
  if (!model.outline.size) return <div class="view"><Empty>This run has no events.</Empty></div>;
  return (
    <ModelContext.Provider value={model}>
      <div class="run-view">
        <Opened model={model}>
          <Head read={read.data} />
          {problem && <Failed problem={problem} again={() => location.reload()} />}
          <Timeline />
          {!model.isWhole.value && !problem && <p class="note reading" role="status">Reading: {plural(model.reading.value, "event")} so far. Here are those around one point.</p>}
          <Panels />
        </Opened>
        {model.isWhole.value && source.kind === "http" && <Live key={epoch} model={model} changed={reload} restart={() => setEpoch(epoch + 1)} />}
      </div>
    </ModelContext.Provider>
  );
}

