//! The writer: byte for byte what Apple's `JSONEncoder` writes with pretty printing, sorted keys and unescaped slashes.
//!
//! Two spaces a level, ` : ` between key and value, keys in case-insensitive order (`expertsPerLayer` before `expertStride`), whole
//! floating-point numbers without a fraction (30, not 30.0), an empty line inside an empty array or object, no newline at the end.
//! Values stream into the output: only the output itself is held in memory.

use std::collections::BTreeMap;

/// A value that can be written as JSON.
pub(crate) trait Encode {
    /// Appends the value to `w`.
    fn encode(&self, w: &mut Writer);
}

/// The whole document of `value`.
pub(crate) fn encode(value: &dyn Encode) -> Vec<u8> {
    let mut w = Writer {
        out: Vec::new(),
        depth: 0,
    };
    value.encode(&mut w);
    w.out
}

/// The output so far, and how deep in it the next value lies.
pub(crate) struct Writer {
    out: Vec<u8>,
    depth: usize,
}

impl Writer {
    /// Writes an object of these fields, in Apple's order of keys.
    pub(crate) fn object(&mut self, mut fields: Vec<(&str, &dyn Encode)>) {
        // Folded once a key: a comparison would fold both sides each time.
        fields.sort_by_cached_key(|(key, _)| (key.to_lowercase(), (*key).to_owned()));
        self.items(b'{', b'}', fields.into_iter(), |w, (key, value)| {
            key.encode(w);
            w.out.extend_from_slice(b" : ");
            value.encode(w);
        });
    }

    /// Writes an array of these values.
    pub(crate) fn array<T: Encode>(&mut self, values: &[T]) {
        self.items(b'[', b']', values.iter(), |w, value| value.encode(w));
    }

    fn items<T>(
        &mut self,
        open: u8,
        close: u8,
        items: impl Iterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        self.out.push(open);
        self.depth += 1;
        let mut is_empty = true;
        for item in items {
            if !is_empty {
                self.out.push(b',');
            }
            is_empty = false;
            self.new_line();
            write(self, item);
        }
        if is_empty {
            self.out.push(b'\n');
        }
        self.depth -= 1;
        self.new_line();
        self.out.push(close);
    }

    fn new_line(&mut self) {
        self.out.push(b'\n');
        self.out.resize(self.out.len() + 2 * self.depth, b' ');
    }
}

impl Encode for str {
    fn encode(&self, w: &mut Writer) {
        w.out.push(b'"');
        for c in self.chars() {
            match c {
                '"' => w.out.extend_from_slice(b"\\\""),
                '\\' => w.out.extend_from_slice(b"\\\\"),
                '\u{8}' => w.out.extend_from_slice(b"\\b"),
                '\u{c}' => w.out.extend_from_slice(b"\\f"),
                '\n' => w.out.extend_from_slice(b"\\n"),
                '\r' => w.out.extend_from_slice(b"\\r"),
                '\t' => w.out.extend_from_slice(b"\\t"),
                '\0'..'\u{20}' => w
                    .out
                    .extend_from_slice(format!("\\u{:04x}", u32::from(c)).as_bytes()),
                c => w
                    .out
                    .extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        w.out.push(b'"');
    }
}

impl Encode for String {
    fn encode(&self, w: &mut Writer) {
        self.as_str().encode(w);
    }
}

impl Encode for &str {
    fn encode(&self, w: &mut Writer) {
        str::encode(self, w);
    }
}

impl Encode for bool {
    fn encode(&self, w: &mut Writer) {
        w.out
            .extend_from_slice(if *self { b"true" } else { b"false" });
    }
}

impl Encode for u32 {
    fn encode(&self, w: &mut Writer) {
        u64::from(*self).encode(w);
    }
}

impl Encode for u64 {
    fn encode(&self, w: &mut Writer) {
        w.out.extend_from_slice(self.to_string().as_bytes());
    }
}

impl Encode for f64 {
    fn encode(&self, w: &mut Writer) {
        w.out.extend_from_slice(number(*self).as_bytes());
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, w: &mut Writer) {
        w.array(self);
    }
}

impl<T: Encode> Encode for BTreeMap<String, T> {
    fn encode(&self, w: &mut Writer) {
        w.object(
            self.iter()
                .map(|(key, value)| (key.as_str(), value as &dyn Encode))
                .collect(),
        );
    }
}

/// The shortest decimal text that reads back as `value`, in Swift's notation: an exponent of at least two digits below 1e-4 and above 2^54.
///
/// # Panics
/// JSON knows no infinity and no NaN; values are checked before they are written.
fn number(value: f64) -> String {
    assert!(value.is_finite(), "JSON cannot hold {value}");
    let magnitude = value.abs();
    if magnitude == 0.0 || (1e-4..=18_014_398_509_481_984.0).contains(&magnitude) {
        return value.to_string();
    }
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}

#[cfg(test)]
mod tests;
