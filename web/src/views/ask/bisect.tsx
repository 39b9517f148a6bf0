// Which step broke it: a binary search for the first step after which a condition on the state fails.

import { useState } from "preact/hooks";
import { address, query, setQuery } from "../../app/place";
import { useRead } from "../../app/reads";
import { Empty, Facts, Failed, Pill, Rec, Shown } from "../../ui/pieces";
import { plural } from "../../ui/text";
import type { ViewProps } from "..";
import { EventLink, Page, type Lines, RunLink, runPath, Table, Value } from "./parts";

const TESTS = ["equals", "differs from", "contains", "does not contain", "exists", "is missing", "is below", "is above"];
const ALONE = ["exists", "is missing"];
const DIFFERENCES_MAX = 200;

// Pointers into the state, down to a depth; a name's `~` and `/` are escaped.
function pointers(value: any, at = "", depth = 0, into: string[] = []): string[] {
  if (value === null || typeof value !== "object" || depth > 4 || into.length > 400) return into;
  for (const [name, each] of Object.entries(value)) {
    const path = `${at}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`;
    into.push(path);
    pointers(each, path, depth + 1, into);
  }
  return into;
}

export default function BisectView({ params }: ViewProps) {
  const { run } = params;
  const { test, pointer = "", value = "", agent } = query.value;
  const state = useRead<any>(`${runPath(run)}/state`, {});
  const isAlone = ALONE.includes(test ?? "");
  const isWhole = Boolean(test && (isAlone || value)); // an old link may have no value
  const read = useRead<Lines>(isWhole ? `${runPath(run)}/bisect` : null, { test, pointer, value: isAlone ? undefined : value, agent });
  const names = state.data ? pointers({ life: state.data.life, agents: state.data.agents }) : [];
  const [draft, setDraft] = useState({ pointer: pointer || "/life/status", test: test ?? TESTS[0], value, agent: agent ?? "" });
  const set = (name: string) => (event: Event) => setDraft({ ...draft, [name]: (event.currentTarget as HTMLInputElement).value });
  return (
    <Page title={`Which step of ${run}`} heading="Which step broke it" note={<>Of run <RunLink run={run} />. State what held at its beginning and does not hold at its end: a binary search over the states finds the first step after which it fails.</>}>
      <form class="filters" onSubmit={(event) => { event.preventDefault(); setQuery(draft); }}>
        <label class="field grow"><span>Part of the state, as a JSON Pointer; empty: all of it</span><input class="mono" list="pointers" value={draft.pointer} onInput={set("pointer")} /></label>
        <label class="field"><span>Test</span><select value={draft.test} onChange={set("test")}>{TESTS.map((each) => <option key={each}>{each}</option>)}</select></label>
        {!ALONE.includes(draft.test) && <label class="field grow"><span>Value: JSON, or a text; "" is the empty text</span><input class="mono" required value={draft.value} onInput={set("value")} /></label>}
        <label class="field"><span>Only steps of</span><select value={draft.agent} onChange={set("agent")}><option value="">all agents</option>{Object.keys(state.data?.agents ?? {}).map((each) => <option key={each}>{each}</option>)}</select></label>
        <button type="submit" class="primary">Search</button>
        <datalist id="pointers">{names.map((each) => <option key={each} value={each} />)}</datalist>
      </form>
      {state.problem && !isWhole ? <Failed problem={state.problem} again={state.reload} /> : isWhole ? <Shown read={read}>{(data) => <Searched run={run} lines={data.lines} />}</Shown> : <Empty>Choose a condition. A check that needs a program runs from a shell: <code>{`hansard bisect ${run} --check CMD`}</code></Empty>}
    </Page>
  );
}

function Searched({ run, lines }: { run: string; lines: any[] }) {
  const head = lines.find((line) => line.kind === "bisect");
  const steps = lines.filter((line) => line.kind === "step");
  const probes = lines.filter((line) => line.kind === "probe");
  const changed = lines.filter((line) => "change" in line);
  const checked = `${probes.length} of ${plural(head.states, "state")} checked.`;
  const text: Record<string, string> = {
    found: "The condition fails first after this step.",
    "among skipped steps": "The condition fails first after one of these steps.",
    "the check passes at the end": "The condition holds at the end of the run: there is no step to find.",
    "the check fails before the first step": "The condition fails before the first step already: no step is to blame.",
  };
  return (
    <>
      <p role="status"><strong>{text[head.outcome]}</strong> <span class="dim">{checked}</span></p>
      {steps.map((step) => (
        <section key={step.step} class="card">
          <header><strong class="mono"><Rec text={step.tool} /></strong> <Pill status={step.status} /> <span class="dim"><Rec text={step.step} />{head.bad?.at && <> · <EventLink run={run} at={String(head.bad.at)}>{`state at position ${head.bad.at}`}</EventLink></>}</span></header>
          <Facts pairs={[["arguments", <Value value={step.arguments} />], ["result", <Value value={step.result} />]]} />
          {head.good?.at && <p class="dim">Go on from before it: <code>{`hansard run fork ${run} --at ${head.good.at}`}</code></p>}
        </section>
      ))}
      {changed.length > 0 && (
        <>
          <h2>What changed between both states</h2>
          <Table label="changes" rows={changed.slice(0, DIFFERENCES_MAX)} columns={[
            { name: "of", cell: (row) => <Rec text={row.agent ?? "the run"} /> },
            { name: "field", cell: (row) => <span class="mono"><Rec text={row.path.join(".")} /></span> },
            { name: "change", cell: (row) => row.change },
            { name: "before", cell: (row) => (row.change === "added" ? "" : <Value value={row.before} />) },
            { name: "after", cell: (row) => (row.change === "removed" ? "" : <Value value={row.after} />) },
          ]} />
          {changed.length > DIFFERENCES_MAX && <p class="note">{`${(changed.length - DIFFERENCES_MAX).toLocaleString("en-US")} more are not listed.`}</p>}
        </>
      )}
      <h2>Checked states</h2>
      <Table label="checked states" rows={probes} columns={[
        { name: "state after", cell: (row) => (row.at ? <a href={address(runPath(run), { at: row.at })}><Rec text={row.after.join(", ")} /></a> : <Rec text={row.after.join(", ")} />) },
        { name: "condition", cell: (row) => <Pill status={row.verdict === "good" ? "completed" : "failed"} label={row.verdict === "good" ? "holds" : "fails"} /> },
      ]} />
      <p class="note">{head.assumed.replace("the check", "the condition")}.</p>
    </>
  );
}
