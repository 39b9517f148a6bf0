// What changed between two points: the pin and the point.

import { useRead } from "../app/reads";
import { Empty, Panel, Rec, Shown } from "../ui/pieces";
import { count, preview } from "../ui/text";
import { AroundContext, Fold, Value } from "../ui/value";
import { useState } from "preact/hooks";
import type { Change, ChangesAnswer } from "./answers";
import { GoToAddress } from "./event";
import { useModel } from "./model";

const ROWS = 200; // changes shown at once

function Row({ change }: { change: Change }) {
  const path = change.path.map(String).join(" › ");
  const text = change.change === "added" ? preview(change.after, 90) : change.change === "removed" ? preview(change.before, 90) : `${preview(change.before, 60)} → ${preview(change.after, 60)}`;
  return (
    <Fold label={path} summary={text} class={`change ${change.change}`} chips={<span class="chips">{change.agent && <span class="chip"><Rec text={change.agent} /></span>}<span class={`pill ${change.change === "added" ? "completed" : change.change === "removed" ? "failed" : "requested"}`}>{change.change}</span></span>}>
      {() => (
        <div class="sides">
          {change.change !== "added" && <div><h3>before</h3><Value value={change.before} /></div>}
          {change.change !== "removed" && <div><h3>after</h3><Value value={change.after} /></div>}
        </div>
      )}
    </Fold>
  );
}

function Changes({ changes }: { changes: Change[] }) {
  const [size, setSize] = useState(ROWS);
  if (!changes.length) return <Empty>Nothing differs between the two points in the run, its board, its tasks or its agents.</Empty>;
  return (
    <div class="list">
      {changes.slice(0, size).map((change) => <Row key={`${change.agent} ${change.path.join("/")}`} change={change} />)}
      {size < changes.length && <button type="button" class="more" onClick={() => setSize(size + ROWS)}>Show more of {count(changes.length)} changes</button>}
    </div>
  );
}

export function ChangesPanel() {
  const model = useModel();
  const { outline, at } = model;
  const pin = model.pin.value;
  const [position, index] = pin.split(".").map(Number);
  const isLater = pin !== "" && outline.at(position, index ?? Infinity) > model.point.value;
  const [since, to] = isLater ? [at, pin] : [pin, at];
  const read = useRead<ChangesAnswer>(pin && pin !== at ? `${model.path}/changes` : null, { since, to });
  return (
    <Panel id="changes" name="Changes" label="Changes between two points" busy={read.loading} bar={
      <>
        {pin ? <span>from <GoToAddress address={since} class="link mono">{since}</GoToAddress> to <GoToAddress address={to} class="link mono">{to}</GoToAddress></span> : <span class="dim">no pin</span>}
        <span class="mono"><button type="button" class="quiet" onClick={() => model.setPin(at)} title="Pin this point ([)">Pin this point</button>{pin && <button type="button" class="quiet" onClick={() => model.setPin("")}>Remove</button>}</span>
      </>
    }>
      <AroundContext.Provider value={{ run: model.path }}>
        {!pin ? <Empty>Pin a point with <kbd>[</kbd>, then move: what changed between the two is listed here.</Empty>
            : pin === at ? <Empty>The pin is at this point. Move, and the changes since are listed here.</Empty>
            : <Shown read={read}>{({ changes }) => <Changes key={since + to} changes={changes} />}</Shown>}
      </AroundContext.Provider>
    </Panel>
  );
}
