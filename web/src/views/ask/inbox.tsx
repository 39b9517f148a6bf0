// Calls that wait for a person: approvals to grant or deny, and doubts to settle.

import { useState } from "preact/hooks";
import { query, setQuery } from "../../app/place";
import { useRead, useReload, useStream, useWrite } from "../../app/reads";
import { Chip, Empty, Failed, Pill, Rec, Shown, Time } from "../../ui/pieces";
import { parsed, plural } from "../../ui/text";
import { Page, RunLink, Unified, Value } from "./parts";

interface Approval {
  approval: string; standing: string; run: string; agent: string; role: string; step: number; tool: string; arguments: any;
  rule: string; label: string; asked_at: string; until: string; answered_at: string | null; by: string | null; because: string | null; run_status: string | null; at_work: boolean | null;
}
interface Doubt {
  run: string; workflow: string; agent: string; step: string; tool: string; effects: string; status: string; label: string; arguments: any; error: { type?: string; message?: string } | null;
}
const RELOAD_MS = 300; // after a change of a run: further ones are gathered

interface Inbox { approvals: Approval[]; doubts: Doubt[] | null }

export default function InboxView() {
  const answered = query.value.answered === "true";
  const read = useRead<Inbox>("/inbox", { every: answered });
  useStream("/live", {}, { event: useReload(read, RELOAD_MS), state: () => undefined });
  return (
    <Page title="Inbox" heading="Inbox" note="Calls that wait for a person. A grant lets one call run, once. Each answer is on record with its author and reason." fields={<label class="tick"><input type="checkbox" checked={answered} onChange={(event) => setQuery({ answered: event.currentTarget.checked ? "true" : "" })} /> Also answered and expired approvals</label>}>
      <Shown read={read}>{(data) => (
        <>
          <section aria-labelledby="approvals">
            <h2 id="approvals">{plural(data.approvals.length, "approval")}</h2>
            {!data.approvals.length && <Empty>No call waits for approval.{answered ? "" : " Answered ones are listed with the switch above."}</Empty>}
            {data.approvals.map((each) => <ApprovalCard key={each.approval} it={each} done={read.reload} />)}
          </section>
          {data.doubts && <section aria-labelledby="doubts">
            <h2 id="doubts">{plural(data.doubts.length, "call")} in doubt</h2>
            {!data.doubts.length && <Empty>Of every call in the record it is known whether its effect happened.</Empty>}
            {data.doubts.map((each) => <DoubtCard key={`${each.run} ${each.step}`} it={each} done={read.reload} />)}
          </section>}
        </>
      )}</Shown>
    </Page>
  );
}

function ApprovalCard({ it, done }: { it: Approval; done: () => void }) {
  const [reason, setReason] = useState("");
  const { act, busy, problem } = useWrite();
  const isOpen = it.standing === "pending";
  const over = !isOpen || it.at_work ? "" : it.run_status && it.run_status !== "open" ? `its run is ${it.run_status}` : it.at_work === false ? "its process has ended" : "";
  const diff = it.arguments?.diff;
  const [isMissing, setMissing] = useState(false);
  const answer = (name: "grant" | "deny") => {
    setMissing(name === "deny" && !reason.trim());
    if (name === "deny" && !reason.trim()) return;
    void act((source) => source.post(`/approvals/${name}`, { approval: it.approval, reason }).then(done));
  };
  return (
    <article class="card" aria-label={`${it.tool} of ${it.agent}`}>
      <header>
        <strong class="mono"><Rec text={it.tool} /></strong> <Pill status={it.standing} />{it.label && <Chip>{it.label}</Chip>}
        <span class="dim">of <Rec text={it.agent} /> (<Rec text={it.role} />) in run <RunLink run={it.run} /></span>
      </header>
      <Value value={it.arguments} open={!diff} label="arguments" />
      {typeof diff === "string" && <Unified text={diff} label="the change" />}
      <p class="dim">Rule <Rec text={it.rule} /> · requested <Time iso={it.asked_at} /> · open until <Time iso={it.until} /></p>
      {it.answered_at && <p>{it.standing} <Time iso={it.answered_at} />{it.by && <> by <Rec text={it.by} /></>}{it.because && <>: <Rec text={it.because} /></>}</p>}
      {over && <p class="bad-text">Nobody is known to wait: {over}. An agent waits again once its run is resumed.</p>}
      {isOpen && (
        <div class="act">
          <label class="field wide"><span>Reason</span><input type="text" value={reason} onInput={(event) => setReason(event.currentTarget.value)} placeholder="For the record and the agent" /></label>
          <button type="button" class="good" disabled={busy} onClick={() => answer("grant")}>Grant</button>
          <button type="button" class="bad" disabled={busy} onClick={() => answer("deny")}>Deny</button>
        </div>
      )}
      {isMissing && <p class="bad-text" role="alert">State the reason first: a denied call stays denied, and its agent gets the reason.</p>}
      {problem && <Failed problem={problem} />}
    </article>
  );
}

function DoubtCard({ it, done }: { it: Doubt; done: () => void }) {
  const [reason, setReason] = useState("");
  const [result, setResult] = useState("");
  const [mistake, setMistake] = useState("");
  const { act, busy, problem } = useWrite();
  const settle = (verdict: "happened" | "did_not_happen") => {
    const isMissing = verdict === "happened" && !result.trim();
    setMistake(isMissing ? "State the result first: null, if the call returns nothing." : "");
    if (isMissing) return;
    const outcome = verdict === "happened" ? { result: parsed(result) } : {};
    void act((source) => source.post("/record/settle", { run: it.run, step: it.step, verdict, reason, ...outcome }).then(done));
  };
  return (
    <article class="card" aria-label={`${it.tool} of ${it.agent}`}>
      <header>
        <strong class="mono"><Rec text={it.tool} /></strong> <Pill status="in_doubt" label="in doubt" />{it.label && <Chip>{it.label}</Chip>}
        <span class="dim"><Rec text={it.step} />, <Rec text={it.effects} />, in run <RunLink run={it.run} /> of <Rec text={it.workflow} /></span>
      </header>
      <p>{it.error ? <>It ended without stating whether it happened: <Rec text={`${it.error.type ?? ""}: ${it.error.message ?? ""}`} /></> : "It was requested, and no outcome is on record."}</p>
      <Value value={it.arguments} open label="arguments" />
      <div class="act">
        <label class="field"><span>Result, if it happened</span><input type="text" class="mono" value={result} onInput={(event) => setResult(event.currentTarget.value)} placeholder="JSON or text" aria-invalid={mistake !== ""} /></label>
        <label class="field"><span>Reason</span><input type="text" value={reason} onInput={(event) => setReason(event.currentTarget.value)} placeholder="How you know" /></label>
        <button type="button" class="good" disabled={busy} onClick={() => settle("happened")}>It happened</button>
        <button type="button" class="bad" disabled={busy} onClick={() => settle("did_not_happen")}>It did not happen</button>
      </div>
      {mistake && <p class="bad-text" role="alert">{mistake}</p>}
      {problem && <Failed problem={problem} />}
    </article>
  );
}
