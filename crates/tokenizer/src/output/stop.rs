//! Stop strings in a stream of pieces: Knuth-Morris-Pratt, one automaton a stop string.
//!
//! After each byte an automaton knows how much of its stop string the text ends with. The largest of these is exactly what must be held
//! back, and a byte costs amortised constant time whatever the strings look like.

#[derive(Debug)]
pub(super) struct StopStrings {
    stops: Vec<StopString>,
    /// Text that could still become a stop string: never more than the longest of them.
    held: String,
}

#[derive(Debug)]
struct StopString {
    /// Its place in the caller's list.
    index: usize,
    text: Vec<u8>,
    /// For each prefix, the length of its longest proper suffix that is a prefix too.
    fallback: Vec<usize>,
    /// How many bytes of it the text ends with.
    matched: usize,
}

impl StopStrings {
    pub fn new(stops: &[String]) -> Self {
        let stops = stops
            .iter()
            .enumerate()
            .filter(|(_, text)| !text.is_empty());
        StopStrings {
            stops: stops
                .map(|(index, text)| StopString::new(index, text))
                .collect(),
            held: String::new(),
        }
    }

    /// Emits what can no longer become a stop string. Returns the index of the stop string that is complete, whose text is gone then.
    pub fn push(&mut self, piece: &str, emit: &mut dyn FnMut(&str)) -> Option<usize> {
        if self.stops.is_empty() {
            emit(piece);
            return None;
        }
        for (at, byte) in piece.bytes().enumerate() {
            let advanced = self.stops.iter_mut().filter_map(|stop| stop.advance(byte));
            // The longest, and the first of equals: `max_by_key` alone would give the last.
            let Some((len, index)) =
                advanced.max_by_key(|(len, index)| (*len, std::cmp::Reverse(*index)))
            else {
                continue;
            };
            // A stop string is valid UTF-8, so both its ends are boundaries of the text's characters.
            self.held.push_str(&piece[..=at]);
            self.held.truncate(self.held.len() - len);
            self.flush(emit);
            return Some(index);
        }
        self.held.push_str(piece);
        let keep = self
            .stops
            .iter()
            .map(|stop| stop.matched)
            .max()
            .unwrap_or(0);
        let free = self.held.len() - keep;
        if free > 0 {
            emit(&self.held[..free]);
            self.held.drain(..free);
        }
        None
    }

    /// Emits what is held and forgets all beginnings of stop strings.
    pub fn flush(&mut self, emit: &mut dyn FnMut(&str)) {
        if !self.held.is_empty() {
            emit(&self.held);
        }
        self.held.clear();
        self.stops.iter_mut().for_each(|stop| stop.matched = 0);
    }
}

impl StopString {
    fn new(index: usize, text: &str) -> Self {
        let text = text.as_bytes().to_vec();
        let mut fallback = vec![0; text.len()];
        let mut len = 0;
        for at in 1..text.len() {
            while len > 0 && text[at] != text[len] {
                len = fallback[len - 1];
            }
            len += usize::from(text[at] == text[len]);
            fallback[at] = len;
        }
        StopString {
            index,
            text,
            fallback,
            matched: 0,
        }
    }

    /// Takes one byte; when it completes the stop string, returns its length and index.
    fn advance(&mut self, byte: u8) -> Option<(usize, usize)> {
        while self.matched > 0 && self.text[self.matched] != byte {
            self.matched = self.fallback[self.matched - 1];
        }
        self.matched += usize::from(self.text[self.matched] == byte);
        (self.matched == self.text.len()).then_some((self.matched, self.index))
    }
}
