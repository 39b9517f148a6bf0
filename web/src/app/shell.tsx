// The frame around views: what a view sets, palette, theme and keys; and the frame of a file.

import { signal } from "@preact/signals";
import { Component, type ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { Failed } from "../ui/pieces";
import { focusField, focusItem, keyText, useCommands, type Command } from "./keys";
import { KeysDialog, Palette } from "./palette";
import { asProblem, useStream } from "./reads";
import type { Listener, Query } from "./source";
import { nextTheme, theme } from "./theme";

// Set by a view: the title of the window, and a status for the end of the navigation, such as "live".
export const title = signal("");
export const live = signal<"" | "live" | "waiting" | "file">("");

export function useTitle(text: string): void {
  useEffect(() => {
    title.value = text;
    return () => void (title.value = "");
  }, [text]);
}

// Follow a stream whose state is shown.
export function useLive(path: string, query: Query, event: Listener["event"]): void {
  useStream(path, query, { event, state: (state) => (live.value = state) });
  useEffect(() => () => void (live.value = ""), []);
}

const open = signal<"" | "palette" | "keys">("");
const LIVE_TEXT = { live: "live", waiting: "reconnecting", file: "file" };

export class Boundary extends Component<{ children: ComponentChildren }, { error: unknown }> {
  state = { error: null as unknown };
  static getDerivedStateFromError = (error: unknown) => ({ error });
  render() {
    return this.state.error === null ? this.props.children : <Failed problem={asProblem(this.state.error)} again={() => this.setState({ error: null })} />;
  }
}

export function useFrame(views: Command[]): void {
  useCommands([
    { title: "Search commands and views", keys: ["$mod+k"], run: () => (open.value = "palette"), group: "Page", inFields: true, isHidden: true },
    { title: "List the keys", keys: ["?"], run: () => (open.value = "keys"), group: "Page" },
    { title: `Change the theme (now: ${theme.value})`, keys: ["Shift+T"], run: nextTheme, group: "Page" },
    { title: "Next item of a list", keys: ["j"], run: () => focusItem(1), group: "Page", isHidden: true },
    { title: "Item before", keys: ["k"], run: () => focusItem(-1), group: "Page", isHidden: true },
    { title: "Go to the first field; Esc leaves it", keys: ["/"], run: focusField, group: "Page", isHidden: true },
    ...views,
  ], true);
}

// Buttons for the palette, the theme and the keys.
export function Ends() {
  return (
    <span class="ends">
      {live.value && <span class={`live ${live.value}`} role="status">{LIVE_TEXT[live.value]}</span>}
      <button type="button" class="quiet" onClick={() => (open.value = "palette")} title={`Search commands and views (${keyText("$mod+k")})`} aria-label="Commands"><span aria-hidden="true">⌘</span></button>
      <button type="button" class="quiet" onClick={nextTheme} title={`Theme: ${theme.value} (${keyText("Shift+T")})`} aria-label={`Theme: ${theme.value}`}><span aria-hidden="true">{theme.value === "dark" ? "☾" : theme.value === "light" ? "☀" : "◐"}</span></button>
      <button type="button" class="quiet" onClick={() => (open.value = "keys")} title="Keys (?)" aria-label="Keys"><span aria-hidden="true">?</span></button>
    </span>
  );
}

export function Dialogs() {
  const close = () => (open.value = "");
  return open.value === "palette" ? <Palette close={close} /> : open.value === "keys" ? <KeysDialog close={close} /> : null;
}

// The frame of a file, which has one view.
export function FileShell({ children }: { children: ComponentChildren }) {
  useFrame([]);
  useEffect(() => void (document.title = title.value), [title.value]);
  return (
    <>
      <main id="content" tabIndex={-1}><Boundary>{children}</Boundary></main>
      <Dialogs />
    </>
  );
}
