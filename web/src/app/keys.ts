// Keys and commands. A view registers its own with `useCommands`; `?` lists them and the palette runs
// them. Keys are tinykeys': "j", "Shift+ArrowLeft", "g r" (one after the other), "$mod+k".

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { createKeybindingsHandler } from "tinykeys";

export interface Command {
  title: string;
  run: (event?: KeyboardEvent) => void;
  keys?: string[]; // the first is the one listed
  group?: string; // heading in the list of keys
  isHidden?: boolean; // listed, but no command of the palette
  inFields?: boolean; // also while a text is typed
}

const layers = signal<Command[][]>([]);
export const commands = (): Command[] => layers.value.flat();

export const isText = (target: EventTarget | null): boolean =>
  target instanceof Element &&
  (target.matches("input:not([type=range]):not([type=checkbox]):not([type=radio]), textarea, select") ||
    target.closest("[contenteditable=true]") !== null);
// (In a shadow root, as of the editor, the path has the field, and the event's target the root's host.)

export const isDialogOpen = (): boolean => document.querySelector("dialog[open]") !== null;

// The commands of a component, while it is shown. Later ones take a key before earlier ones.
export function useCommands(list: Command[]): void {
  const newest = useRef(list);
  newest.current = list;
  const shape = list.map((each) => `${each.title}|${each.keys?.join(",")}`).join("\n");
  useEffect(() => {
    const mine = newest.current.map((each, index) => ({ ...each, run: (event?: KeyboardEvent) => newest.current[index]?.run(event) }));
    layers.value = [...layers.value, mine];
    const bindings: Record<string, (event: KeyboardEvent) => void> = {};
    for (const each of mine) {
      for (const key of each.keys ?? []) {
        bindings[key] = (event) => {
          if (event.defaultPrevented || (!each.inFields && (isText(event.composedPath()[0]) || isDialogOpen()))) return;
          event.preventDefault();
          each.run(event);
        };
      }
    }
    const handler = createKeybindingsHandler(bindings, { ignore: () => false });
    document.addEventListener("keydown", handler);
    return () => {
      document.removeEventListener("keydown", handler);
      layers.value = layers.value.filter((layer) => layer !== mine);
    };
  }, [shape]);
}

const NAMES: Record<string, string> = {
  ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", $mod: /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘" : "Ctrl", Escape: "Esc", "Shift+?": "?",
};
export const keyText = (key: string): string[] =>
  (NAMES[key] ?? key).split(" ").map((press) => press.split("+").map((part) => NAMES[part] ?? part).join("+"));
