// Search over the texts of events.

import { query } from "../../app/place";
import { useRead } from "../../app/reads";
import { Chip, Empty, Rec, Shown } from "../../ui/pieces";
import { inLine, plural } from "../../ui/text";
import { EventLink, Field, Page, RunLink } from "./parts";

interface Hit {
  address: string; event: string; type: string; run: string | null; agent: string | null; role: string | null; snippet: string; marks: [number, number][]; rank: number;
}
interface Found { hits: Hit[]; more: boolean; limit: number; position: number }

export default function SearchView() {
  const { q = "", run, agent, type, limit } = query.value;
  const read = useRead<Found>(q.trim() ? "/search" : null, { q, run, agent, type, limit });
  const filters = [run && `in run ${run}`, agent && `of agent ${agent}`, type && `of type ${type}`].filter(Boolean).join(", ");
  return (
    <Page title={q ? `Search: ${q}` : "Search"} heading="Search" note="All words must occur in an event’s texts and keys; “…” is a phrase. Case and accents do not count. Payloads over 64 KiB, which are kept apart, are not searched." fields={
      <>
        <Field name="q" label="Words" placeholder={'refund "lost order"'} wide type="search" />
        <Field name="run" label="Run" placeholder="all" />
        <Field name="agent" label="Agent" placeholder="all" />
        <Field name="type" label="Type" placeholder="such as decision.made" />
      </>
    }>
      {!q.trim() ? <Empty>Enter words to search for.</Empty> : (
        <Shown read={read}>{(data) => (
          <>
            <p class={data.hits.length ? "note" : "note empty"} role="status">
              {data.hits.length ? `${plural(data.hits.length, "event")}, best match first${data.more ? `: the first ${data.limit} of more` : ""}.` : `No event${filters && ` ${filters}`} has these words in its texts.`}
            </p>
            <ol class="hits">
              {data.hits.map((hit) => (
                <li key={hit.event}>
                  <div><EventLink run={hit.run} at={hit.address} /> <Chip>{hit.type}</Chip> {hit.run && <span class="dim">run <RunLink run={hit.run} /></span>} {hit.agent && <span class="dim"><Rec text={hit.agent} /></span>}</div>
                  <p><Marked text={hit.snippet} marks={hit.marks} /></p>
                </li>
              ))}
            </ol>
          </>
        )}</Shown>
      )}
    </Page>
  );
}

// Digests beside a match are left out.
const DIGESTS = /\b(?:fingerprint|digest|call|head|source): [\w-]{20,}(?:; ?|$)/g;
const beside = (text: string): string => inLine(text.replace(DIGESTS, ""));

function Marked({ text, marks }: { text: string; marks: [number, number][] }) {
  const chars = [...text]; // marks count characters as Python does
  const parts = [];
  let at = 0;
  for (const [begin, end] of marks) {
    parts.push(beside(chars.slice(at, begin).join("")), <mark key={begin}>{inLine(chars.slice(begin, end).join(""))}</mark>);
    at = end;
  }
  return <bdi>{parts}{beside(chars.slice(at).join(""))}</bdi>;
}
