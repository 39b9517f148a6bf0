// The palette (commands by name) and the list of keys, as dialogs.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { grouped } from "../ui/text";
import { commands, keyText, type Command } from "./keys";

export function Dialog({ label, close, children, class: kind = "" }: { label: string; close: () => void; children: ComponentChildren; class?: string }) {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    box.current?.showModal();
    return () => before?.isConnected ? before.focus() : undefined;
  }, []);
  const outside = (event: MouseEvent) => event.target === box.current && close();
  return (
    <dialog ref={box} class={kind} aria-label={label} onClose={close} onClick={outside}>
      <div class="dialog-body">{children}</div>
    </dialog>
  );
}

function Keys({ command }: { command: Command }) {
  const first = command.keys?.[0];
  return first ? <span class="keys">{keyText(first).map((key) => <kbd key={key}>{key}</kbd>)}</span> : null;
}

export function Palette({ close }: { close: () => void }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const parts = text.toLowerCase().split(/\s+/).filter(Boolean);
  const seen = new Set<string>();
  const list = commands()
    .reverse()
    .filter((each) => !each.isHidden && !seen.has(each.title) && seen.add(each.title))
    .filter((each) => parts.every((part) => each.title.toLowerCase().includes(part)));
  const chosen = Math.min(at, list.length - 1);
  useEffect(() => document.getElementById(`palette-${chosen}`)?.scrollIntoView({ block: "nearest" }), [chosen, text]);
  const run = (command: Command | undefined) => {
    close();
    if (command) requestAnimationFrame(() => command.run());
  };
  const onKey = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setAt((chosen + step + list.length) % Math.max(1, list.length));
    else if (event.key === "Enter") run(list[chosen]);
    else return;
    event.preventDefault();
  };
  return (
    <Dialog label="Commands" close={close} class="palette">
      <input type="text" role="combobox" aria-label="Command" aria-expanded="true" aria-controls="palette-list" aria-activedescendant={list.length ? `palette-${chosen}` : undefined} placeholder="Search commands and views" autocomplete="off" spellcheck={false} value={text} onInput={(event) => { setText(event.currentTarget.value); setAt(0); }} onKeyDown={onKey} />
      <ul id="palette-list" role="listbox" aria-label="Commands">
        {list.map((each, index) => (
          <li key={each.title} id={`palette-${index}`} role="option" aria-selected={index === chosen} onClick={() => run(each)} onMouseMove={() => setAt(index)}>
            <span>{each.title}</span><Keys command={each} />
          </li>
        ))}
      </ul>
      {!list.length && <p class="note">No command contains “{text}”.</p>}
    </Dialog>
  );
}

export function KeysDialog({ close }: { close: () => void }) {
  const groups = grouped(commands().filter((command) => command.keys?.length), (each) => each.group ?? "This view");
  return (
    <Dialog label="Keys" close={close}>
      <div class="dialog-head"><h2>Keys</h2><button type="button" class="quiet" onClick={close} aria-label="Close">✕</button></div>
      <div class="key-groups">
        {[...groups].reverse().map(([name, list]) => (
          <section key={name}>
            <h3>{name}</h3>
            <dl>{list.map((each) => <div key={each.title}><dt><Keys command={each} /></dt><dd>{each.title}</dd></div>)}</dl>
          </section>
        ))}
      </div>
    </Dialog>
  );
}
