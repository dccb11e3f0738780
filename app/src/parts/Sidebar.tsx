// The list of conversations: by age, or by the words that are looked for.

import type { RefObject } from "preact";
import type { ChatLine } from "../wire";
import { type Speech, useSpeech } from "../words";
import { Icon, Mark } from "./Icon";

interface Props {
  chats: ChatLine[] | null;
  current: number | null;
  search: string;
  searchField: RefObject<HTMLInputElement | null>;
  isOpen: boolean;
  onSearch: (words: string) => void;
  onNew: () => void;
  onClose: () => void;
  onSettings: () => void;
}

export function Sidebar(props: Props) {
  const { words } = useSpeech();
  const { chats, search } = props;
  return (
    <nav class={`sidebar ${props.isOpen ? "open" : ""}`} aria-label={words.conversations}>
      <div class="brand">
        <Mark />
        <span class="name">Ouzel</span>
        <button type="button" class="quiet only-narrow" aria-label={words.closeList} onClick={props.onClose}>
          <Icon name="close" />
        </button>
      </div>
      <button type="button" class="new" onClick={props.onNew}>
        <Icon name="plus" />
        <span>{words.newChat}</span>
        <kbd aria-hidden="true">Alt N</kbd>
      </button>
      <label class="search">
        <Icon name="search" />
        <input
          ref={props.searchField}
          type="search"
          value={search}
          placeholder={words.search}
          aria-label={words.search}
          onInput={(event) => props.onSearch(event.currentTarget.value)}
        />
      </label>
      <div class="chats">
        {chats && chats.length === 0 && <p class="soft empty-list">{search ? words.nothingFound : words.noChats}</p>}
        {groups(chats ?? [], !!search, words).map(([name, lines]) => (
          <section key={name} aria-label={name}>
            {name && <h2>{name}</h2>}
            <ul>
              {lines.map((line) => (
                <li key={line.id}>
                  <a href={`#/${line.id}`} aria-current={line.id === props.current ? "page" : undefined} onClick={props.onClose}>
                    <span class="title">{line.title}</span>
                    {line.is_answering && <span class="pulse" role="img" aria-label={words.answeringNow} />}
                    {line.excerpt && <span class="excerpt">{line.excerpt}</span>}
                  </a>
                </li>
              ))}
            </ul>
          </section>
        ))}
      </div>
      <button type="button" class="foot" onClick={props.onSettings}>
        <Icon name="settings" />
        <span>{words.settings}</span>
      </button>
    </nav>
  );
}

/** Conversations by age; what a search finds stays together. */
function groups(chats: ChatLine[], isSearch: boolean, words: Speech["words"]): [string, ChatLine[]][] {
  if (isSearch) return chats.length ? [["", chats]] : [];
  const midnight = new Date().setHours(0, 0, 0, 0);
  const day = 24 * 3600 * 1000;
  const name = (ms: number) => {
    if (ms >= midnight) return words.today;
    if (ms >= midnight - day) return words.yesterday;
    return ms >= midnight - 7 * day ? words.week : words.older;
  };
  const found = new Map<string, ChatLine[]>();
  for (const line of chats) {
    const group = name(line.updated_ms);
    found.set(group, [...(found.get(group) ?? []), line]);
  }
  return [...found];
}
