// How far something is, as a bar; without a total it says only that something goes on.

interface Props {
  name: string;
  done?: number;
  total?: number;
  /** Said instead of a bare number. */
  text?: string;
}

export function Bar({ name, done = 0, total = 0, text }: Props) {
  if (total <= 0) return <div class="bar endless" role="progressbar" aria-label={name} aria-valuetext={text}><i /></div>;
  const share = Math.min(1, done / total);
  return (
    <div class="bar" role="progressbar" aria-label={name} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.floor(100 * share)} aria-valuetext={text}>
      <i style={{ width: `${100 * share}%` }} />
    </div>
  );
}
