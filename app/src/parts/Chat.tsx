// A conversation from its first message to the field for the next one.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Conversation } from "../conversation";
import type { Larger, Settings, Status } from "../wire";
import { useSpeech } from "../words";
import { Composer, keepDraft } from "./Composer";
import { Icon } from "./Icon";
import { Answer, UserMessage } from "./Message";
import { isOverflow, Overflow } from "./Overflow";

/** Whoever is this near to the end follows what is written. */
const NEAR_PX = 90;

interface Props {
  id: number | null;
  conversation: Conversation;
  settings: Settings;
  status: Status | null;
  /** Chooses a model, where none is chosen. */
  onChoose: (() => void) | null;
  /** Loads the model with a larger context, and says whether it could; nothing where it is not for the page to say. */
  onLarger: ((larger: Larger) => Promise<boolean>) | null;
  onNew: () => void;
  onProblem: (error: unknown) => void;
}

export function Chat({ id, conversation, settings, status, onChoose, onLarger, onNew, onProblem }: Props) {
  const { words } = useSpeech();
  const { chat, live, isMissing, ask, stop } = conversation;
  const scroller = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const [isFar, setFar] = useState(false);
  const toEnd = () => {
    follows.current = true;
    scroller.current?.scrollTo({ top: scroller.current.scrollHeight });
  };
  const onScroll = () => {
    const area = scroller.current;
    if (!area) return;
    follows.current = area.scrollHeight - area.scrollTop - area.clientHeight < NEAR_PX;
    setFar(!follows.current);
  };
  useLayoutEffect(() => {
    if (follows.current) toEnd();
  }, [chat, live]);
  useEffect(() => {
    follows.current = true;
  }, [id]);
  const send = (text: string) => {
    follows.current = true;
    return ask({ text });
  };
  const messages = chat?.messages ?? [];
  const isAnswering = live !== null;
  return (
    <>
      <div class="scroller" ref={scroller} onScroll={onScroll}>
        <div class="column" id="conversation" tabIndex={-1}>
          {isMissing && <p class="hint">{words.missing}</p>}
          {id === null && <Hello model={status?.model ?? ""} onAsk={send} />}
          {messages.map((message, i) => {
            const isLast = i === messages.length - 1;
            return message.role === "user" ? (
              <UserMessage
                key={message.id}
                message={message}
                canEdit={!isAnswering && !onChoose}
                onEdit={(text) => ask({ replaces: message.id, text })}
              />
            ) : (
              <Answer
                key={message.id}
                message={message}
                live={isLast ? live : null}
                canAnswerAgain={isLast && !isAnswering && !onChoose}
                onAgain={() => void ask({ replaces: message.id })}
              >
                {isLast && !isAnswering && !onChoose && message.ending && isOverflow(message.ending) && (
                  <Overflow
                    larger={onLarger ? (message.ending.larger ?? null) : null}
                    canLeaveOut={i > 1}
                    onLarger={async (larger) => {
                      if (await onLarger?.(larger)) await ask({ replaces: message.id });
                    }}
                    onLeaveOut={() => void ask({ replaces: message.id, leaves_out: true })}
                    onNew={() => {
                      keepDraft(null, messages[i - 1]?.text ?? "");
                      onNew();
                    }}
                  />
                )}
              </Answer>
            );
          })}
        </div>
        {isFar && (
          <button type="button" class="to-end" aria-label={words.toEnd} title={words.toEnd} onClick={toEnd}>
            <Icon name="down" />
          </button>
        )}
      </div>
      {!isMissing && (
        <Composer chat={id} isAnswering={isAnswering} enterIsNewline={settings.enter_is_newline} onSend={send} onStop={stop} onChoose={onChoose} onProblem={onProblem} />
      )}
    </>
  );
}

function Hello({ model, onAsk }: { model: string; onAsk: (text: string) => void }) {
  const { words } = useSpeech();
  return (
    <section class="hello">
      <img src="/assets/icon.svg" alt="" width="72" height="72" />
      <h1>{words.hello}</h1>
      <p class="soft">{words.helloMore(model)}</p>
      <ul aria-label={words.tryOne}>
        {words.examples.map((example) => (
          <li key={example}>
            <button type="button" onClick={() => onAsk(example)}>{example}</button>
          </li>
        ))}
      </ul>
    </section>
  );
}
