// The page's few pictograms. They say nothing by themselves: whoever shows one says in words what it is for.

const PATHS = {
  menu: "M4 7h16M4 12h16M4 17h16",
  plus: "M12 5v14M5 12h14",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14ZM20 20l-4-4",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M8 8h8v8H8z",
  copy: "M9 9h10v11H9zM5 15V4h10",
  check: "M5 12.5l4.5 4.5L19 7.5",
  edit: "M4 20h4L19 9l-4-4L4 16zM13.5 6.5l4 4",
  again: "M19 12a7 7 0 1 1-2.2-5.1M19 4v4h-4",
  trash: "M5 7h14M10 7V4.5h4V7M7 7l.8 13h8.4L17 7M10 11v5M14 11v5",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  settings: "M4 7h9M19 7h1M4 17h1M11 17h9M16 4.5v5M8 14.5v5",
  details: "M4 19V11M10 19V5M16 19v-6M21 19H3",
  close: "M6 6l12 12M18 6L6 18",
  down: "M12 5v14M6 13l6 6 6-6",
  warning: "M12 4 2.5 20h19zM12 10v5M12 17.4v.2",
  attach: "M19.5 11.5 12 19a4.6 4.6 0 0 1-6.5-6.5l8-8a3.1 3.1 0 0 1 4.4 4.4l-7.9 7.9a1.5 1.5 0 0 1-2.2-2.2l7.2-7.1",
  file: "M7 3.5h7l4 4v13H7zM14 3.5v4h4",
  lock: "M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 7 0v3",
} as const;

export function Icon({ name }: { name: keyof typeof PATHS }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}

export function Mark() {
  return <img class="mark" src="/assets/icon.svg" alt="" width="28" height="28" />;
}
