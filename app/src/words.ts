// Which language is spoken, and numbers and times in it.

import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Language } from "./wire";
import { de } from "./words/de";
import { en, type Words } from "./words/en";

export interface Speech {
  language: Language;
  words: Words;
  number(value: number, digits?: number): string;
  percent(share: number): string;
  bytes(n: number): string;
  /** As a person says how long something takes. */
  duration(seconds: number): string;
  time(ms: number): string;
}

export function speech(language: Language): Speech {
  const number = (value: number, digits = 0) =>
    value.toLocaleString(language, { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return {
    language,
    words: { en, de }[language],
    number,
    percent: (share) => `${number(100 * share)} %`,
    bytes(n) {
      const units = ["B", "KiB", "MiB", "GiB", "TiB"];
      let [value, unit] = [n, 0];
      while (value >= 1000 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
      return `${number(value, unit > 0 && value < 100 ? 1 : 0)} ${units[unit]}`;
    },
    duration(seconds) {
      if (seconds < 60) return `${number(Math.ceil(seconds))} s`;
      const minutes = Math.round(seconds / 60);
      return minutes < 60 ? `${number(minutes)} min` : `${number(Math.floor(minutes / 60))} h ${number(minutes % 60)} min`;
    },
    time: (ms) => new Date(ms).toLocaleString(language, { dateStyle: "medium", timeStyle: "short" }),
  };
}

/** The language that the browser asks for, as far as it is spoken here. */
export function browserLanguage(): Language {
  return navigator.languages.map((tag) => tag.slice(0, 2)).find((tag) => tag === "de" || tag === "en") === "de" ? "de" : "en";
}

export const Spoken = createContext<Speech>(speech("en"));
export const useSpeech = () => useContext(Spoken);
