// The origin of a value of shared state: each write of its key, and the calls that read it afterwards.

import { address, query } from "../../app/place";
import { useRead } from "../../app/reads";
import { Chip, Rec, Shown, Time } from "../../ui/pieces";
import { plural, preview } from "../../ui/text";
import type { ViewProps } from "..";
import { EventLink, Page, type Lines, RunLink, runPath, Table, Value } from "./parts";

interface Write { version: number; operation: string; value?: unknown; expected?: number | null; author: string; role: string; event: string; position: number; time: string }
interface Reading { run: string; agent: string; role: string; step: number; address: string; position: number; at: string; result: string | null }
interface Origin { history: Lines; reads: Reading[]; position: number }

export default function OriginView({ params }: ViewProps) {
  const { run, key } = params;
  const read = useRead<Origin>(`${runPath(run)}/origin/${encodeURIComponent(key)}`, { at: query.value.at });
  return (
    <Page title={`${key} of ${run}`} heading={<>Origin of <Rec text={key} /></>} note={<>A key of the shared state of run <RunLink run={run} />{query.value.at && <> at {query.value.at} · <a href={address(`${runPath(run)}/origin/${encodeURIComponent(key)}`)}>now</a></>}</>}>
      <Shown read={read}>{(data) => {
        const [now, ...writes] = data.history.lines as [any, ...Write[]];
        const rows: ({ kind: "write"; at: number; write: Write } | { kind: "read"; at: number; reading: Reading })[] = [
          ...writes.map((write) => ({ kind: "write" as const, at: write.position, write })),
          ...data.reads.map((reading) => ({ kind: "read" as const, at: reading.position, reading })),
        ].sort((one, two) => one.at - two.at);
        return (
          <>
            <section class="card">
              <header><strong>Value</strong> <Chip>version {now.version}</Chip>{now.author && <span class="dim">by <Rec text={now.author} /> (<Rec text={now.role} />)</span>}{now.kind === null && <span>removed or expired</span>}</header>
              <Value value={now.value} open />
            </section>
            <h2>{plural(writes.length, "write")} and {plural(data.reads.length, "read")}</h2>
            <Table label="writes and reads" rows={rows} columns={[
              { name: "event", cell: (row) => <EventLink run={run} at={row.kind === "write" ? String(row.write.position) : row.reading.address} /> },
              { name: "what", cell: (row) => (row.kind === "write" ? <strong>{row.write.operation}</strong> : <span>read</span>) },
              { name: "by", cell: (row) => <Rec text={row.kind === "write" ? row.write.author : `${row.reading.agent}#${row.reading.step}`} /> },
              { name: "version", cell: (row) => (row.kind === "write" ? row.write.version : ""), right: true },
              { name: "value", cell: (row) => (row.kind === "write" ? <Value value={row.write.value} /> : <span class="dim">the value as of then</span>) },
              { name: "time", cell: (row) => <Time iso={row.kind === "write" ? row.write.time : `${row.reading.at}Z`} /> },
            ]} />
            {!data.reads.length && <p class="note">No call of the run read the key with <code>board.get</code> or in a transaction. An agent may also have been shown it in its view.</p>}
          </>
        );
      }}</Shown>
    </Page>
  );
}

interface Mention { type: string; agent: string | null; actor: string; address: string; at: string; name: string; step: string | null; is_next: boolean; value: string | null }
interface Trail { step: string; tool: string; arguments: unknown; result: unknown; sources: Mention[]; uses: Mention[]; characters: number; limit: number; position: number }

// Where a call's arguments have their texts from, and which events used its result.
export function ResultView({ params }: ViewProps) {
  const { run, step } = params;
  const read = useRead<Trail>(`${runPath(run)}/result/${encodeURIComponent(step)}`);
  return (
    <Page title={`${step} of ${run}`} heading={<>Origin and use of <Rec text={step} /></>} note={<>A call of run <RunLink run={run} /></>}>
      <Shown read={read}>{(data) => (
        <>
          <section class="card">
            <header><strong><Rec text={data.tool} /></strong></header>
            <Value value={data.arguments} label="arguments" />
            <Value value={data.result} label="result" />
          </section>
          <Mentions run={run} heading="Where its arguments came from" list={data.sources} limit={data.limit} empty={`No earlier event of this run has a text of the arguments.`} />
          <Mentions run={run} heading="What used the result" list={data.uses} limit={data.limit} empty={`No later event of this run follows the call, names it, or has a text of its result.`} />
          <p class="note">{`Texts of ${data.characters} characters or more are compared, as they are recorded, in the events of this run alone. Large values kept apart are not searched.`}</p>
        </>
      )}</Shown>
    </Page>
  );
}

function Mentions({ run, heading, list, limit, empty }: { run: string; heading: string; list: Mention[]; limit: number; empty: string }) {
  return (
    <>
      <h2>{heading}</h2>
      <Table label={heading} rows={list} empty={empty} columns={[
        { name: "event", cell: (row) => <EventLink run={run} at={row.address} /> },
        { name: "what", cell: (row) => <>{row.type.replaceAll("_", " ")} {row.name && <strong><Rec text={row.name} /></strong>}</> },
        { name: "by", cell: (row) => <Rec text={`${row.agent ?? row.actor}${row.step ? `#${row.step}` : ""}`} /> },
        { name: "how", cell: (row) => (row.is_next ? "made next, after the result" : "has a text of it") },
        { name: "text", cell: (row) => row.value && <Rec text={preview(row.value, 90)} class="dim" /> },
        { name: "time", cell: (row) => <Time iso={`${row.at}Z`} /> },
      ]} />
      {list.length === limit && <p class="note">{`Only ${limit} events are listed.`}</p>}
    </>
  );
}
