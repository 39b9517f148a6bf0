// Change a value and go on from here: the plan of a fork, the fork, and the worker that runs it.

import { useEffect, useRef, useState } from "preact/hooks";
import { address, query, setQuery } from "../../app/place";
import { useRead, useReload, useStream, useWrite } from "../../app/reads";
import { Empty, Facts, Failed, Pill, Rec, Shown } from "../../ui/pieces";
import type { RunAnswer } from "../../run/answers";
import { inLine, plural } from "../../ui/text";
import type { ViewProps } from "..";
import { Page, RunLink, runPath, Table } from "./parts";

interface Call { step: string; tool: string; kind: string; effects: string; action: string; is_certain: boolean; why: string }
interface Edit { name: string; edit: string; what: string; value: unknown; versions: string[] }
interface Plan {
  run: string; position: number; effects: string; before: number; counts: Record<string, number>; calls: Call[]; more: number; workflow: string; edits: Edit[];
}
interface Work { run: string; workflow: string; status: string; worker: string; code: number | null; last: string }

const RELOAD_MS = 300; // after an event of the fork: further ones are gathered
const POLL_MS = 2_000; // a request and its claim are no events of the fork
const EFFECTS: [string, string][] = [["models", "calls of models run, other effects are withheld"], ["shadow", "effects are withheld, calls of models too"], ["live", "effects happen, and may happen twice"]];
const STATUS: Record<string, string> = { edited: "open", served: "open", runs: "requested", withheld: "cancelled", stops: "failed" };

export default function ChangeView({ params }: ViewProps) {
  const { run } = params;
  const { edit = "", prompt = "", at, effects, fork } = query.value;
  const isEdited = Boolean(edit || prompt);
  const read = useRead<Plan>(isEdited || at ? `${runPath(run)}/plan` : null, { edit, prompt, at, effects });
  const [draft, setDraft] = useState(edit);
  useEffect(() => setDraft(edit), [edit]);
  return (
    <Page title={`Change ${run}`} heading="Change a value and go on" note={<>From run <RunLink run={run} />, which does not change: a fork is made, a new run that begins before the changed value. A call that depends on the value runs, the others are answered from the record.</>}>
      {fork ? <Made parent={run} fork={fork} /> : (
        <>
          <form class="filters" onSubmit={(event) => { event.preventDefault(); setQuery({ edit: draft.trim(), at: "" }); }}>
            <label class="field grow"><span>Values to change: calls as agent#number, messages and writes by their address, such as 1234.2; several with a comma</span><input class="mono" value={draft} onInput={(event) => setDraft(event.currentTarget.value)} /></label>
            <label class="field grow"><span>Effects in the fork</span><select value={effects ?? (isEdited ? "models" : "shadow")} onChange={(event) => setQuery({ effects: event.currentTarget.value })}>{EFFECTS.map(([name, text]) => <option key={name} value={name}>{`${name}: ${text}`}</option>)}</select></label>
            <button type="submit" class="primary">Show the plan</button>
          </form>
          {isEdited || at ? <Shown read={read}>{(plan) => <Planned key={`${read.query.edit} ${read.query.prompt}`} plan={plan} at={read.query.at} isOld={read.loading} />}</Shown>
            : <Empty>Name what you want to change. In the view of a run, each step, message and key has a link to this page.</Empty>}
        </>
      )}
    </Page>
  );
}

const asText = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "null");

const NEW: Record<string, string> = { result: "New result of", content: "New value written by", message: "New content of", prompt: "Version of" };
const NOTES: Record<string, string> = {
  content: "Reads of the value after this write get the new one, until a later write replaces it.",
  message: "Calls of a model that have the old content as a whole get the new one. Your program keeps its own copy.",
  prompt: "This call and all after it use the chosen version of the prompt.",
};

function EditField({ edit, text, set }: { edit: Edit; text: string; set: (text: string) => void }) {
  const form = edit.edit === "prompt" ? "" : typeof edit.value === "string" ? ", a text" : ", as JSON";
  const note = NOTES[edit.edit];
  return (
    <div>
      <label class="field"><span>{inLine(`${NEW[edit.edit]} ${edit.edit === "prompt" ? `${edit.what} from ${edit.name} on` : `${edit.name} (${edit.what})${form}`}`)}</span>
        {edit.edit === "prompt" ? <select value={text} onChange={(event) => set(event.currentTarget.value)}>{edit.versions.map((each) => <option key={each} value={each}>{each === edit.value ? `${each}, as on record` : each}</option>)}</select>
          : <textarea class="mono" rows={Math.min(16, text.split("\n").length + 1)} value={text} onInput={(event) => set(event.currentTarget.value)} spellcheck={false} />}
      </label>
      {note && <p class="note">{note}</p>}
    </div>
  );
}

function Planned({ plan, at, isOld }: { plan: Plan; at: unknown; isOld: boolean }) {
  const { act, busy, problem } = useWrite();
  const [texts, setTexts] = useState<string[]>(() => plan.edits.map((each) => asText(each.value)));
  const [reason, setReason] = useState("");
  const [hasWorker, setWorker] = useState(true);
  const [mistake, setMistake] = useState("");
  const forks = useRef<Record<string, string>>({}); // by request: one is made once, also if asking for a worker fails
  const make = async () => {
    const edits: { step: string; result?: unknown; prompt?: string }[] = [];
    for (const [index, { name: step, edit, value }] of plan.edits.entries()) {
      try {
        edits.push(edit === "prompt" ? { step, prompt: texts[index] } : { step, result: typeof value === "string" ? texts[index] : JSON.parse(texts[index]) });
      } catch (error) {
        return setMistake(`The new value of ${step} is not JSON: ${error}`);
      }
    }
    setMistake("");
    await act(async (source) => {
      const request = { run: plan.run, ...(edits.length ? { edits } : { at }), effects: plan.effects, reason };
      const run = (forks.current[JSON.stringify(request)] ??= (await source.post<string>("/record/fork", request)).data);
      if (hasWorker) await source.post("/queue/request", { run, reason });
      setQuery({ fork: run });
    });
  };
  return (
    <>
      {plan.edits.map((edit, index) => <EditField key={edit.name} edit={edit} text={texts[index]} set={(text) => setTexts(texts.map((each, at) => (at === index ? text : each)))} />)}
      <div class="act">
        <label class="field wide"><span>Reason</span><input type="text" value={reason} onInput={(event) => setReason(event.currentTarget.value)} placeholder="For the record" /></label>
        <label class="tick"><input type="checkbox" checked={hasWorker} onChange={(event) => setWorker(event.currentTarget.checked)} /> Have a worker run it</label>
        <button type="button" class="primary" disabled={busy || isOld} onClick={make}>Make the fork</button>
      </div>
      {mistake && <p class="bad-text" role="alert">{mistake}</p>}
      {problem && <Failed problem={problem} />}
      <h2>What the fork will do</h2>
      <p role="status">{`${plural(plan.before, "call")} before the change ${plan.before === 1 ? "is" : "are"} on record. After it: ${Object.entries(plan.counts).map(([action, count]) => `${count} ${action}`).join(", ") || "no call on record"}.`}</p>
      {plan.calls.length > 0 && <Table label="planned calls" rows={plan.calls} columns={[
        { name: "call", cell: (row) => <span class="mono"><Rec text={row.step} /></span> },
        { name: "tool", cell: (row) => <Rec text={row.tool} /> },
        { name: "effects", cell: (row) => row.effects },
        { name: "in the fork", cell: (row) => <Pill status={STATUS[row.action]} label={row.is_certain ? (row.action === "served" ? "served, if the call is the same" : row.action) : `${row.action}, if it is made`} /> },
        { name: "why", cell: (row) => row.why },
      ]} />}
      {plan.more > 0 && <p class="note">{`${plan.more.toLocaleString("en-US")} more calls are not listed.`}</p>}
      <p class="note">The program decides which calls it makes. The plan follows from those on record.</p>
    </>
  );
}

function Made({ parent, fork }: { parent: string; fork: string }) {
  const read = useRead<Work[]>("/record/queue/list", { run: fork });
  const life = useRead<RunAnswer>(runPath(fork), { agents: false });
  const reload = useReload(read, RELOAD_MS);
  const reloadLife = useReload(life, RELOAD_MS);
  const reloadBoth = () => (reload(), reloadLife());
  useStream(`${runPath(fork)}/live`, {}, { event: reloadBoth, state: () => undefined });
  useEffect(() => {
    const timer = setInterval(reloadBoth, POLL_MS);
    return () => clearInterval(timer);
  }, [fork]);
  if (read.problem) return <Failed problem={read.problem} again={read.reload} />;
  const work = read.data?.[0];
  const status = life.data?.run?.status;
  const isFailed = work?.status === "ended" && work.code !== 0;
  return (
    <section class="card" aria-label="The fork">
      <header><strong>Fork <RunLink run={fork} /></strong> {status && <Pill status={status} />} {work && <Pill status={work.status === "ended" ? (work.code === 0 ? "completed" : "failed") : "open"} label={`request ${work.status}`} />}</header>
      <p role="status">{!work ? "No worker is requested." : work.status === "requested" ? "It waits for a worker." : work.status === "claimed" ? `Worker ${work.worker} runs it.` : `The program of worker ${work.worker} ended with exit code ${work.code}.`}</p>
      {work?.last && <p class="mono"><Rec text={work.last} /></p>}
      <Facts pairs={[
        ["follow it", <a href={address(runPath(fork))}>the fork, live</a>],
        ["compare", <a href={address(`${runPath(parent)}/diff/${encodeURIComponent(fork)}`)}>beside its parent: first difference, and whether the two can be compared</a>],
        ["run it here", !work && <code>{`hansard run resume ${fork} -- COMMAND`}</code>],
        ["start a worker", work?.status === "requested" && <code>{`hansard worker ${work.workflow} -- COMMAND`}</code>],
        ["run it again", isFailed && status !== "completed" && <code>{`hansard run resume ${fork} -- COMMAND`}</code>],
      ]} />
      <p><button type="button" onClick={() => setQuery({ fork: "" })}>Another change</button></p>
    </section>
  );
}
