// What a person may choose, kept by the server as soon as it is chosen, and what the engine was started with.

import type { Language, Settings, Status, Theme } from "../wire";
import { useSpeech } from "../words";
import { Dialog } from "./Dialog";
import { Fact, Field, NumberField } from "./Fields";

interface Props {
  settings: Settings;
  status: Status | null;
  problem: string | null;
  /** What was changed, and nothing else. */
  onChange: (change: Partial<Settings>) => void;
  onModels: () => void;
  onLoad: (load: boolean) => void;
  onEnd: () => void;
  onClose: () => void;
}

export function SettingsDialog({ settings, status, problem, onChange, onModels, onLoad, onEnd, onClose }: Props) {
  const { words, number, bytes } = useSpeech();
  const set = (change: Partial<Settings>) => onChange(change);
  const defaults = status?.defaults;
  return (
    <Dialog title={words.settings} onClose={onClose} isWide>
      {problem && <p class="problem" role="alert">{problem}</p>}
      <fieldset>
        <legend>{words.answers}</legend>
        <Field name={words.system}>
          <textarea
            rows={3}
            defaultValue={settings.system}
            placeholder={words.systemHint}
            onChange={(event) => set({ system: event.currentTarget.value })}
          />
        </Field>
        <label class="check">
          <input type="checkbox" checked={settings.thinking} onChange={(event) => set({ thinking: event.currentTarget.checked })} />
          <span>
            {words.thinkFirst}
            <span class="soft small">{words.thinkFirstMore}</span>
          </span>
        </label>
        <div class="grid">
          <NumberField name={words.temperature} value={settings.temperature} min={0} max={2} step={0.1}
            hint={defaults && words.defaultValue(number(defaults.temperature, defaults.temperature % 1 ? 1 : 0))} onSet={(temperature) => set({ temperature })} />
          <NumberField name={words.topP} value={settings.top_p} min={0.01} max={1} step={0.01}
            hint={defaults && words.defaultValue(number(defaults.top_p, 2))} onSet={(top_p) => set({ top_p })} />
          <NumberField name={words.topK} value={settings.top_k} min={0} max={100000} step={1}
            hint={defaults && words.defaultValue(number(defaults.top_k))} onSet={(top_k) => set({ top_k })} />
          <NumberField name={words.maxNew} value={settings.max_new} min={1} max={1000000} step={1}
            hint={words.noLimit} onSet={(max_new) => set({ max_new })} />
        </div>
        <p class="soft small">{words.temperatureMore}</p>
      </fieldset>
      <fieldset>
        <legend>{words.appearance}</legend>
        <div class="grid">
          <Field name={words.theme}>
            <select value={settings.theme ?? ""} onChange={(event) => set({ theme: (event.currentTarget.value || null) as Theme | null })}>
              <option value="">{words.themes.system}</option>
              <option value="light">{words.themes.light}</option>
              <option value="dark">{words.themes.dark}</option>
            </select>
          </Field>
          <Field name={words.language}>
            <select value={settings.language ?? ""} onChange={(event) => set({ language: (event.currentTarget.value || null) as Language | null })}>
              <option value="">{words.languages.system}</option>
              <option value="en" lang="en">{words.languages.en}</option>
              <option value="de" lang="de">{words.languages.de}</option>
            </select>
          </Field>
        </div>
        <Field name={words.sendWith}>
          <select value={settings.enter_is_newline ? "ctrl" : "enter"} onChange={(event) => set({ enter_is_newline: event.currentTarget.value === "ctrl" })}>
            <option value="enter">{words.sendWithEnter}</option>
            <option value="ctrl">{words.sendWithCtrl}</option>
          </select>
        </Field>
      </fieldset>
      {status && (
        <fieldset>
          <legend>{words.engine}</legend>
          <dl class="facts">
            <Fact name={words.model}>
              {status.model || words.setup.noneChosen}{" "}
              {status.model && <span class="soft small">{status.is_loaded ? words.loaded : words.notLoaded}</span>}
            </Fact>
            {status.model && <Fact name={words.memory}>{bytes(status.budget_bytes)}</Fact>}
            {status.model && <Fact name={words.context}>{words.tokens(number(status.context))}</Fact>}
            {status.layers > 0 && (
              <Fact name={words.slots}>
                {words.slotsMore(number(status.slots), number(status.slots / status.layers, 1), number(status.experts))}
              </Fact>
            )}
            <Fact name={words.version}>{status.version}</Fact>
          </dl>
          <div class="row tools">
            {status.can_choose && <button type="button" class="plain" onClick={onModels}>{words.setup.openDialog}</button>}
            {status.model && (
              <button type="button" class="plain" disabled={status.is_answering || status.is_loading} onClick={() => onLoad(!status.is_loaded)}>
                {status.is_loaded ? words.unload : words.load}
              </button>
            )}
            <button type="button" class="plain" onClick={onEnd}>{words.end}</button>
          </div>
        </fieldset>
      )}
      <fieldset>
        <legend>{words.keyboard}</legend>
        <dl class="facts">
          {words.keys.map(([key, does]) => (
            <Fact key={key} name={<kbd>{key}</kbd>}>{does}</Fact>
          ))}
        </dl>
      </fieldset>
    </Dialog>
  );
}
