// A list of any number of rows of one height, of which only those in sight exist.

import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
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
  row: (index: number, place: Place) => ComponentChildren; // an element of the height with these attributes
  height?: number; // of a row, in px
  current?: number | null; // kept in sight when it changes; -1 or null: none
  stick?: boolean; // keep the last row in sight while rows are added
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
  const virtual = useRef<Virtualizer<HTMLDivElement, Element> | null>(null);
  const options = {
    count: size,
    getScrollElement: () => box.current,
    estimateSize: () => height,
    overscan: OVERSCAN,
    observeElementRect,
    observeElementOffset,
    scrollToFn: elementScroll,
    onChange: () => redraw((now) => now + 1),
  };
  virtual.current ??= new Virtualizer<HTMLDivElement, Element>(options);
  virtual.current.setOptions({ ...virtual.current.options, ...options });
  useLayoutEffect(() => virtual.current!._didMount(), []);
  useLayoutEffect(() => virtual.current!._willUpdate());
  // Scrolled before the rows are made: afterwards the old ones would be laid out, too, and made again.
  const place = useRef<{ current: number | null; size: number }>({ current: null, size: 0 });
  const isMoved = current !== null && current >= 0 && current < size && current !== place.current.current;
  const isEarly = isMoved && box.current !== null && size === place.current.size && virtual.current.scrollRect !== null;
  if (isEarly) {
    const to = inSight(virtual.current.scrollOffset ?? 0, virtual.current.scrollRect!.height, current, height);
    if (to !== null) {
      box.current!.scrollTop = to;
      virtual.current.scrollOffset = Math.max(0, Math.min(to, size * height - virtual.current.scrollRect!.height));
    }
  }
  place.current = { current, size };
  useLayoutEffect(() => {
    if (isEarly || current === null || current < 0 || current >= size) return;
    const to = inSight(box.current!.scrollTop, box.current!.clientHeight, current, height);
    if (to !== null) box.current!.scrollTop = to;
  }, [current, size > 0]);
  useLayoutEffect(() => {
    if (props.stick && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [props.stick, size]);
  const rows = virtual.current.getVirtualItems();
  const [first, last] = [rows[0]?.index ?? 0, rows.at(-1)?.index ?? -1];
  useEffect(() => props.onRange?.(first, last), [first, last, size]);
  const printed = Math.min(size, PRINTED_ROWS);
  return (
    <div ref={box} id={props.id} class={`vlist ${props.class ?? ""}`} role={props.role ?? "list"} tabIndex={0} aria-label={props.label} aria-activedescendant={props.active} onKeyDown={props.onKeyDown} onClick={props.onClick}>
      <div id={props.rowsId} role="presentation" class="vsize" style={{ height: isPrinting.value ? "auto" : `${size * height}px` }}>
        {isPrinting.value
          ? Array.from({ length: printed }, (_, index) => props.row(index, placeOf(index, size, {})))
          : rows.map((each) => props.row(each.index, placeOf(each.index, size, { position: "absolute", top: "0", left: "0", right: "0", height: `${height}px`, transform: `translateY(${each.start}px)` })))}
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
