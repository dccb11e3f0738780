// What would be fetched, from where, under which licence, and whether there is room: known without asking, and what the hub said when a person had it asked.

import { useState } from "preact/hooks";
import { isUnderWay, type Models } from "../models";
import type { Found, Installing, Offer } from "../setup";
import { useSpeech } from "../words";
import { Bar } from "./Bar";
import { Dialog } from "./Dialog";
import { Fact } from "./Fields";
import { Icon } from "./Icon";

const SHORT_COMMIT = 10;

export function Offered({ models, installing }: { models: Models; installing: Installing }) {
  const { words, bytes } = useSpeech();
  const { setup } = words;
  const { found, offer, stage, work } = installing;
  const hasFailed = stage === "failed" && work?.what === "download";
  const isPaused = found.partial_bytes !== null;
  return (
    <>
      {isPaused && !hasFailed && <Paused installing={installing} />}
      <dl class="facts">
        <Fact name={setup.repository}>
          {offer ? <a href={offer.page} target="_blank" rel="noopener noreferrer">{found.repository}</a> : found.repository}
        </Fact>
        <Fact name={setup.host}>{found.host}</Fact>
        {offer ? <Told found={found} offer={offer} /> : <FreeDisk found={found} needed={null} />}
        <Fact name={setup.folder}><code>{found.folder}</code></Fact>
      </dl>
      {offer !== null && offer.removes_bytes > 0 && <p class="notice small">{setup.removes(bytes(offer.removes_bytes))}</p>}
      {installing.offer_problem && (
        <p class="problem" role="alert"><Icon name="warning" /><span lang="en">{installing.offer_problem}</span></p>
      )}
      {!isUnderWay(installing) && <Choices models={models} installing={installing} isPaused={isPaused} hasFailed={hasFailed} />}
      {!offer && !isPaused && !installing.is_asking && <p class="soft small">{setup.askMore(found.host)}</p>}
    </>
  );
}

/** What the hub said. */
function Told({ found, offer }: { found: Found; offer: Offer }) {
  const { words, bytes } = useSpeech();
  const { setup } = words;
  return (
    <>
      <Fact name={setup.revision}>
        <code>{offer.commit.slice(0, SHORT_COMMIT)}</code>{" "}
        <span class="soft small">{offer.is_pinned ? setup.pinned : setup.notPinned}</span>
      </Fact>
      <Fact name={setup.licence}>
        {offer.licence ?? setup.licenceUnknown}{" "}
        <a class="small" href={offer.page} target="_blank" rel="noopener noreferrer">{setup.readLicence}</a>
      </Fact>
      <Fact name={setup.toFetch}>
        {bytes(offer.transfer_bytes)}{" "}
        {offer.come_bytes > 0 && <span class="soft small">{setup.cameBefore(bytes(offer.come_bytes))}</span>}
      </Fact>
      <Fact name={setup.onDisk}>{bytes(offer.disk_bytes)}</Fact>
      <FreeDisk found={found} needed={offer.needed_bytes} />
    </>
  );
}

function FreeDisk({ found, needed }: { found: Found; needed: number | null }) {
  const { words, bytes } = useSpeech();
  const { setup } = words;
  const free = found.free_bytes;
  if (free === null) return <Fact name={setup.freeDisk}>{setup.freeDiskUnknown}</Fact>;
  return (
    <Fact name={setup.freeDisk}>
      {bytes(free)}{" "}
      {needed !== null && (
        <span class={`small ${free < needed ? "bad" : "good"}`}>{free < needed ? setup.notEnough(bytes(needed)) : setup.enough}</span>
      )}
    </Fact>
  );
}

function Paused({ installing }: { installing: Installing }) {
  const { words, bytes } = useSpeech();
  const { setup } = words;
  const { found, offer, work, done_bytes, total_bytes } = installing;
  const wasFetching = work?.what === "download" && installing.phase === "fetching" && total_bytes > 0;
  const [done, total] = wasFetching ? [done_bytes, total_bytes] : [offer?.come_bytes ?? 0, offer?.transfer_bytes ?? 0];
  return (
    <div class="working">
      <p class="gauge-line">
        <strong>{setup.paused}</strong>
        <span class="value">{setup.pausedMore(bytes(total > 0 ? done : (found.partial_bytes ?? 0)))}</span>
      </p>
      {total > 0 && <Bar name={setup.paused} done={done} total={total} text={setup.ofBytes(bytes(done), bytes(total))} />}
    </div>
  );
}

interface ChoicesProps {
  models: Models;
  installing: Installing;
  isPaused: boolean;
  hasFailed: boolean;
}

function Choices({ models, installing, isPaused, hasFailed }: ChoicesProps) {
  const { words } = useSpeech();
  const { setup } = words;
  const { found, offer, is_asking: isAsking } = installing;
  const hasRoom = !offer || found.free_bytes === null || found.free_bytes >= offer.needed_bytes;
  const download = () => models.start({ what: "download" });
  return (
    <div class="choices">
      {isAsking && <span class="row soft" role="status"><span class="dots" aria-hidden="true"><i /><i /><i /></span>{setup.asking(found.host)}</span>}
      {!offer && !isAsking && (
        <button type="button" class={isPaused ? "plain" : "primary"} onClick={models.askHub}>{setup.ask(found.host)}</button>
      )}
      {found.partial_bytes !== null && <Discard partialBytes={found.partial_bytes} onDiscard={models.discard} />}
      {isPaused && !hasFailed && <button type="button" class="primary" onClick={download}>{setup.resume}</button>}
      {offer && !isPaused && !hasFailed && (
        <button type="button" class="primary" disabled={!hasRoom} onClick={download}>{setup.download}</button>
      )}
    </div>
  );
}

/** Removes what has come, after a question. */
function Discard({ partialBytes, onDiscard }: { partialBytes: number; onDiscard: () => void }) {
  const { words, bytes } = useSpeech();
  const { setup } = words;
  const [isAsking, setAsking] = useState(false);
  const close = () => setAsking(false);
  return (
    <>
      <button type="button" class="plain" onClick={() => setAsking(true)}>{setup.discard}</button>
      {isAsking && (
        <Dialog title={setup.discardTitle} onClose={close}>
          <p>{setup.discardMore(bytes(partialBytes))}</p>
          <div class="choices">
            <button type="button" class="plain" onClick={close} autoFocus>{setup.keep}</button>
            <button type="button" class="danger" onClick={() => {
              close();
              onDiscard();
            }}>{setup.discard}</button>
          </div>
        </Dialog>
      )}
    </>
  );
}
