// What forms are made of: a field with its name, and a fact with its name.

import type { ComponentChildren } from "preact";

export function Field({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <label class="field">
      <span>{name}</span>
      {children}
    </label>
  );
}

export function Fact({ name, children }: { name: ComponentChildren; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
