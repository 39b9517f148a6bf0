// The origin of a value of shared state: each write of its key, and the calls that read it afterwards.

import { address, query } from "../../app/place";
import { useRead } from "../../app/reads";
import { Chip, Rec, Shown, Time } from "../../ui/pieces";
import { plural } from "../../ui/text";
import type { ViewProps } from "..";
import { AsOf, EventLink, Head, type Lines, RunLink, runPath, Table, useTitle, Value } from "./parts";

interface Write { version: number; operation: string; value?: unknown; expected?: number | null; author: string; role: string; event: string; position: number; time: string }
interface Reading { run: string; agent: string; role: string; step: number; address: string; position: number; at: string; result: string | null }
interface Origin { history: Lines; reads: Reading[]; position: number }

export default function OriginView({ params }: ViewProps) {
  const { run, key } = params;
  useTitle(`${key} of ${run}`);
  const read = useRead<Origin>(`${runPath(run)}/origin/${encodeURIComponent(key)}`, { at: query.value.at });
  return (
    <div class="page ask">
      <Head heading={<>Origin of <Rec text={key} /></>} note={<>A key of the shared state of run <RunLink run={run} />{query.value.at && <> at {query.value.at} · <a href={address(`${runPath(run)}/origin/${encodeURIComponent(key)}`)}>now</a></>}</>} />
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
            {!data.reads.length && <p class="note">No call of the run read the key with <code>board.get</code>. An agent may also have been shown it in its view.</p>}
            <AsOf position={data.position} />
          </>
        );
      }}</Shown>
    </div>
  );
}
