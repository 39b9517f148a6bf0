// The frame around every view: navigation, theme, keys, palette, and the position that the view shows.

import { signal } from "@preact/signals";
import { Component, type ComponentChildren, type ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Failed, Waiting } from "../ui/pieces";
import { VIEWS, match, type ViewProps } from "../views";
import { useCommands } from "./keys";
import { KeysDialog, Palette } from "./palette";
import { address, go, path, place } from "./place";
import { asProblem } from "./reads";
import { Problem, type Source } from "./source";
import { nextTheme, theme } from "./theme";

// Set by a view: the title of the window, and a status for the end of the navigation, such as "live".
export const title = signal("");
export const live = signal<"" | "live" | "waiting" | "file">("");

const open = signal<"" | "palette" | "keys">("");
const LIVE_TEXT = { live: "live", waiting: "reconnecting", file: "file" };

class Boundary extends Component<{ children: ComponentChildren }, { error: unknown }> {
  state = { error: null as unknown };
  static getDerivedStateFromError = (error: unknown) => ({ error });
  render() {
    return this.state.error === null ? this.props.children : <Failed problem={asProblem(this.state.error)} again={() => this.setState({ error: null })} />;
  }
}

const loaded = new Map<string, ComponentType<ViewProps>>(); // by path of the view

function Content({ source }: { source: Source }) {
  const hit = match(path.value);
  const [, redraw] = useState(0);
  const [problem, setProblem] = useState<Problem | null>(null);
  const key = hit?.view.path ?? "";
  useEffect(() => {
    setProblem(null);
    if (!hit || loaded.has(key)) return;
    hit.view.load().then(
      (part) => {
        loaded.set(key, part.default);
        redraw((now) => now + 1);
      },
      () => setProblem(new Problem(0, "A part of this page did not load", hit.view.title, "Reload the page: the server may have a newer version.")),
    );
  }, [key]);
  if (!hit) return <Failed problem={new Problem(404, "No such view", path.value, `The views are: ${VIEWS.filter((view) => view.nav).map((view) => view.nav).join(", ")}.`)} />;
  if (problem) return <Failed problem={problem} again={() => location.reload()} />;
  const Part = loaded.get(key);
  if (!Part) return <Waiting />;
  const shown = Object.values(hit.params).join(" ");
  return <Boundary key={`${key} ${shown}`}><Part params={hit.params} source={source} /></Boundary>;
}

export function Shell({ source }: { source: Source }) {
  const isFile = source.kind === "file";
  const views = VIEWS.filter((view) => view.nav);
  useEffect(() => {
    const name = title.value || match(path.value)?.view.title || "";
    document.title = [name, isFile ? "" : place.value.workspace, "Hansard"].filter(Boolean).join(" · ");
  }, [title.value, path.value]);
  useCommands([
    { title: "Search commands and views", keys: ["$mod+k"], run: () => (open.value = "palette"), group: "Page", inFields: true, isHidden: true },
    { title: "List the keys", keys: ["Shift+?"], run: () => (open.value = "keys"), group: "Page" },
    { title: `Change the theme (now: ${theme.value})`, keys: ["Shift+T"], run: nextTheme, group: "Page" },
    ...(isFile ? [] : views.map((view) => ({ title: `Go to ${view.title}`, keys: view.keys ? [view.keys] : [], run: () => go(view.path), group: "Go to" }))),
  ]);
  return (
    <>
      <a class="skip" href="#content" onClick={(event) => { event.preventDefault(); document.getElementById("content")?.focus(); }}>Skip to the content</a>
      <header id="top">
        {isFile ? <span class="brand">Hansard</span> : <a class="brand" href={address("/runs")}>Hansard</a>}
        <span class="workspace" title="Workspace"><bdi>{place.value.workspace}</bdi></span>
        {!isFile && (
          <nav aria-label="Views">
            {views.map((view) => (
              <a key={view.path} href={address(view.path)} aria-current={path.value === view.path || path.value.startsWith(`${view.path}/`) ? "page" : undefined}>{view.nav}</a>
            ))}
          </nav>
        )}
        <span class="ends">
          {live.value && <span class={`live ${live.value}`} role="status">{LIVE_TEXT[live.value]}</span>}
          <button type="button" class="quiet" onClick={() => (open.value = "palette")} title="Search commands and views (Ctrl+K)" aria-label="Commands"><span aria-hidden="true">⌘K</span></button>
          <button type="button" class="quiet" onClick={nextTheme} title={`Theme: ${theme.value} (T)`} aria-label={`Theme: ${theme.value}`}><span aria-hidden="true">{theme.value === "dark" ? "☾" : theme.value === "light" ? "☀" : "◐"}</span></button>
          <button type="button" class="quiet" onClick={() => (open.value = "keys")} title="Keys (?)" aria-label="Keys"><span aria-hidden="true">?</span></button>
        </span>
      </header>
      <main id="content" tabIndex={-1}><Content source={source} /></main>
      {open.value === "palette" && <Palette close={() => (open.value = "")} />}
      {open.value === "keys" && <KeysDialog close={() => (open.value = "")} />}
    </>
  );
}
