// A list of any number of rows of one height, of which only those in sight exist.

import { signal } from "@preact/signals";
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
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

// Rows are drawn where the list is scrolled to before the browser reports it.
const scrollNow: typeof elementScroll = (offset, options, list) => {
  elementScroll(offset, options, list);
  list.scrollOffset = list.scrollElement!.scrollTop;
};

export function VirtualList(props: VirtualListProps) {
  const { size, height = 30, current = null } = props;
  const box = useRef<HTMLDivElement>(null);
  const now = useRef({ current: -1, size: 0, room: 0, start: -1, end: -1, first: 0, last: -1, base: 0, slots: 1 }).current; // as it was drawn
  const [, redraw] = useState(0);
  const options = {
    count: size, overscan: OVERSCAN, scrollPaddingStart: 2 * height, scrollPaddingEnd: 2 * height, observeElementRect, observeElementOffset, scrollToFn: scrollNow,
    getScrollElement: () => box.current,
    estimateSize: () => height,
    onChange: ({ range }: Virtualizer<HTMLDivElement, Element>) => (range?.startIndex !== now.start || range?.endIndex !== now.end) && redraw((times) => times + 1),
  };
  const [list] = useState(() => new Virtualizer<HTMLDivElement, Element>(options));
  list.setOptions(options);
  const reach = (index: number) => {
    const { startIndex, endIndex } = list.range ?? { startIndex: 0, endIndex: 0 };
    const isFar = index < 2 * startIndex - endIndex || index > 2 * endIndex - startIndex;
    const [to] = list.getOffsetForIndex(index, isFar ? "center" : "auto")!;
    if (to !== list.scrollOffset) list.scrollToOffset(to);
  };
  // Scrolled before the rows are made: afterwards the old ones would be laid out, too, and made again.
  const room = list.scrollRect?.height ?? 0;
  const isResized = room !== now.room && current !== null && now.start <= current && current <= now.end; // it was in sight
  const isMoved = current !== null && current >= 0 && current < size && (current !== now.current || isResized);
  const isEarly = isMoved && size === now.size && list.range !== null;
  if (isEarly) reach(current);
  Object.assign(now, { size, room, current: size ? current : -1 });
  useLayoutEffect(() => list._didMount(), []);
  useLayoutEffect(() => {
    list._willUpdate();
    if (isMoved && !isEarly) reach(current);
  });
  const rows = list.getVirtualItems();
  const [first, last] = [rows[0]?.index ?? 0, rows.at(-1)?.index ?? -1];
  if (first > now.last || last < now.first || rows.length > now.slots) Object.assign(now, { base: first, slots: Math.max(now.slots, rows.length) }); // elements keep their order
  Object.assign(now, { first, last, start: list.range?.startIndex, end: list.range?.endIndex });
  const slot = (index: number) => (((index - now.base) % now.slots) + now.slots) % now.slots;
  useEffect(() => void (rows.length && props.onRange?.(first, last)));
  const printed = Math.min(size, PRINTED_ROWS);
  return (
    <div ref={box} id={props.id} class={`vlist ${props.class ?? ""}`} role={props.role ?? "list"} tabIndex={0} aria-label={props.label} aria-activedescendant={props.active} onKeyDown={props.onKeyDown} onClick={props.onClick}>
      <div id={props.rowsId} role="presentation" class={isPrinting.value ? "" : "vsize"} style={{ height: isPrinting.value ? "auto" : `${list.getTotalSize()}px`, "--row": `${height}px` }}>
        {isPrinting.value
          ? Array.from({ length: printed }, (_, index) => props.row(index, placeOf(index, size, {}), index))
          : rows.map(({ index, start }) => props.row(index, placeOf(index, size, { transform: `translateY(${start}px)` }), slot(index)))}
      </div>
      {isPrinting.value && size > printed ? <p class="note">{(size - printed).toLocaleString("en-US")} more rows are not printed.</p> : null}
    </div>
  );
}

const placeOf = (index: number, size: number, style: Record<string, string>): Place => ({ style, "aria-setsize": size, "aria-posinset": index + 1 });
