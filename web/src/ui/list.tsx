// A list of any number of rows of one height, of which only those in sight exist.

import { signal } from "@preact/signals";
import type { AriaRole, ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

// Every row has an element while the page is printed.
export const isPrinting = signal(false);
addEventListener("beforeprint", () => (isPrinting.value = true));
addEventListener("afterprint", () => (isPrinting.value = false));

const OVERSCAN = 8; // rows outside of the sight that exist, on either side
const PRINTED_ROWS = 2_000;

// Attributes of a row: its place in the list.
export interface Place {
  style: Record<string, string>;
  "aria-setsize": number;
  "aria-posinset": number;
}

export interface VirtualListProps {
  size: number;
  row: (index: number, place: Place, slot: number) => ComponentChildren; // an element with these attributes; as a key, the slot gives it the element of a row that left
  height?: number; // of a row, in px
  current?: number | null; // kept in sight when it changes; -1 or null: none
  label: string;
  role?: AriaRole;
  rowsId?: string; // of the element around the rows
  class?: string;
  id?: string;
  active?: string; // id of the current row, for assistive technology
  onKeyDown?: (event: KeyboardEvent) => void;
  onClick?: (event: MouseEvent) => void;
  onRange?: (first: number, last: number) => void; // rows that exist now
}

export function VirtualList(props: VirtualListProps) {
  const { size, height = 30, current = null } = props;
  const box = useRef<HTMLDivElement>(null);
  const [, redraw] = useState(0);
  const sight = useRef({ top: 0, room: 0, first: 0, last: -1, base: 0, size: 0, height });
  const now = sight.current;
  const range = () => [Math.max(0, Math.floor(now.top / now.height) - OVERSCAN), Math.min(now.size - 1, Math.floor((now.top + now.room) / now.height) + OVERSCAN)];
  useLayoutEffect(() => {
    const node = box.current!;
    const look = () => {
      Object.assign(now, { top: node.scrollTop, room: node.clientHeight });
      const [first, last] = range();
      if (first !== now.first || last !== now.last) redraw((times) => times + 1);
    };
    const watch = new ResizeObserver(look);
    watch.observe(node);
    node.addEventListener("scroll", look, { passive: true });
    look();
    return () => {
      watch.disconnect();
      node.removeEventListener("scroll", look);
    };
  }, []);
  // Scrolled before the rows are made: afterwards the old ones would be laid out, too, and made again.
  const place = useRef<number | null>(null);
  const isMoved = current !== null && current >= 0 && current < size && current !== place.current;
  const isEarly = isMoved && box.current !== null && size === now.size && now.room > 0;
  Object.assign(now, { size, height });
  if (isEarly) {
    const to = inSight(now.top, now.room, current, height);
    if (to !== null) {
      box.current!.scrollTop = to;
      now.top = Math.max(0, Math.min(to, size * height - now.room));
    }
  }
  place.current = current;
  useLayoutEffect(() => {
    if (isEarly || current === null || current < 0 || current >= size) return;
    const to = inSight(box.current!.scrollTop, box.current!.clientHeight, current, height);
    if (to !== null) box.current!.scrollTop = to;
  }, [current, size > 0]);
  const [first, last] = range();
  const isFar = first > now.last || last < now.first || last - first !== now.last - now.first;
  Object.assign(now, { first, last, base: isFar ? first : now.base });
  const slots = last - first + 1;
  const slot = (index: number) => (((index - now.base) % slots) + slots) % slots;
  useEffect(() => props.onRange?.(first, last));
  const printed = Math.min(size, PRINTED_ROWS);
  return (
    <div ref={box} id={props.id} class={`vlist ${props.class ?? ""}`} role={props.role ?? "list"} tabIndex={0} aria-label={props.label} aria-activedescendant={props.active} onKeyDown={props.onKeyDown} onClick={props.onClick}>
      <div id={props.rowsId} role="presentation" class={isPrinting.value ? "" : "vsize"} style={{ height: isPrinting.value ? "auto" : `${size * height}px`, "--row": `${height}px` }}>
        {isPrinting.value
          ? Array.from({ length: printed }, (_, index) => props.row(index, placeOf(index, size, {}), index))
          : Array.from({ length: slots }, (_, at) => props.row(first + at, placeOf(first + at, size, { transform: `translateY(${(first + at) * height}px)` }), slot(first + at)))}
      </div>
      {isPrinting.value && size > printed ? <p class="note">{(size - printed).toLocaleString("en-US")} more rows are not printed.</p> : null}
    </div>
  );
}

const placeOf = (index: number, size: number, style: Record<string, string>): Place => ({ style, "aria-setsize": size, "aria-posinset": index + 1 });

// Where a list is to be scrolled to, so that a row is in sight; null if it is.
function inSight(from: number, room: number, index: number, height: number): number | null {
  const top = index * height;
  const margin = Math.min(room / 4, 2 * height);
  if (top >= from + margin && top + height <= from + room - margin) return null;
  const isFar = top < from - room || top > from + 2 * room;
  return isFar ? top - room / 2 : top < from + margin ? top - margin : top + height - room + margin;
}
