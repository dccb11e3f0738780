//! What a model writes, sorted: answer, thinking, tool calls, and where it stops.
//!
//! A pure state machine over token ids. Markers are recognised as ids, never as text, so an answer that merely spells a marker stays
//! an answer. Stop strings are searched in the answer only: thinking and tool calls may contain them. What stands where a call should
//! be and is none is text of the part around it, markers included. Events borrow what they carry; once its buffers have grown, the
//! parser allocates for tool calls only.
//!
//! ```text
//! <|channel>thought\n THINKING \n<channel|> ANSWER <|tool_call> CALL <tool_call|> ANSWER ... stop
//! ```

mod stop;

use crate::call::{self, Piece, ToolCallParser};
use crate::detokenize::Detokenizer;
use crate::tokenizer::Tokenizer;
use serde_json::{Map, Value};
use stop::StopStrings;

/// The name of the channel that holds thinking, with the newline that ends it; neither is part of the thinking.
const THOUGHT: &str = "thought\n";

/// A piece of the model's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// Text for the reader.
    Answer(&'a str),
    /// Text between `<|channel>thought` and `<channel|>`.
    Thinking(&'a str),
    /// A whole tool call.
    ToolCall {
        /// The tool's name, as the list of tools has it if one of them fits.
        name: &'a str,
        /// The arguments.
        arguments: &'a Map<String, Value>,
        /// What the model wrote, markers included.
        raw: &'a str,
    },
    /// The output ended; nothing follows.
    Stop(StopReason),
}

/// Why the output ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The model wrote this stop id.
    Token(u32),
    /// The answer came to contain the stop string with this index; text before it was delivered, the stop string was not.
    Text(usize),
}

/// Where to stop.
#[derive(Debug, Clone, Default)]
pub struct OutputOptions {
    /// Ids that end the output.
    pub stop_ids: Vec<u32>,
    /// Texts that end the output; an empty one never matches. Where several end at the same place, the longest counts.
    pub stop_strings: Vec<String>,
    /// The names of the tools that the model may call. With them, a call is found without its opening marker too.
    pub tools: Vec<String>,
}

/// Sorts one output; see the module.
#[derive(Debug)]
pub struct OutputParser<'t> {
    markers: [(Option<u32>, Marker); 4],
    stop_ids: Vec<u32>,
    /// The id of the mark around strings in a call.
    quote: Option<u32>,
    detokenizer: Detokenizer<'t>,
    text: Sorter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marker {
    ChannelOpens,
    ChannelCloses,
    CallOpens,
    CallCloses,
}

impl<'t> OutputParser<'t> {
    /// Starts where a prompt ends: if the prompt's last turn left a channel open, the output begins with thinking.
    pub fn new(tokenizer: &'t Tokenizer, options: &OutputOptions, prompt: &[u32]) -> Self {
        let marker = |name, marker| (tokenizer.id_of(name), marker);
        let mut parser = OutputParser {
            markers: [
                marker("<|channel>", Marker::ChannelOpens),
                marker("<channel|>", Marker::ChannelCloses),
                marker(call::OPENS, Marker::CallOpens),
                marker(call::CLOSES, Marker::CallCloses),
            ],
            stop_ids: options.stop_ids.clone(),
            quote: tokenizer.id_of(call::QUOTE),
            detokenizer: Detokenizer::new(tokenizer, true),
            text: Sorter::new(options),
        };
        parser.read_prompt(tokenizer, prompt);
        parser
    }

    fn read_prompt(&mut self, tokenizer: &Tokenizer, prompt: &[u32]) {
        let turn = tokenizer.id_of("<|turn>");
        let marks = |id: &u32| {
            self.marker(*id)
                .is_some_and(|m| m == Marker::ChannelOpens || m == Marker::ChannelCloses)
        };
        let Some(at) = prompt.iter().rposition(|id| Some(*id) == turn || marks(id)) else {
            return;
        };
        if self.marker(prompt[at]) == Some(Marker::ChannelOpens) {
            // What the prompt already says of the thought is not output.
            self.text.enter(Part::Name { matched: 0 });
            self.text
                .push(&tokenizer.decode(&prompt[at + 1..], true), &mut |_| ());
            self.text.held_newline = false;
        }
    }

    /// Takes the next id and emits what has become known, in order. After a stop, does nothing.
    pub fn push(&mut self, id: u32, emit: &mut dyn FnMut(Event<'_>)) {
        if self.text.stopped.is_some() {
            return;
        }
        let marker = self.marker(id);
        let is_stop = self.stop_ids.contains(&id);
        if marker.is_none() && !is_stop {
            let is_shown = self.text.part == Part::Call
                || Some(id) == self.quote && self.text.calls.is_calling();
            if is_shown && self.quote == Some(id) {
                // Bytes that are held stand before the mark.
                self.text.push(self.detokenizer.finish(), emit);
            }
            let piece = self.detokenizer.push_as(id, !is_shown);
            return self.text.push(piece, emit);
        }
        self.text.push(self.detokenizer.finish(), emit);
        if let Some(marker) = marker {
            self.text.pass(marker, emit);
        }
        if is_stop {
            self.text.stop(StopReason::Token(id), emit);
        }
    }

    /// Forgets a call that has begun, where nobody will run it or it will not be completed.
    pub fn discard_call(&mut self) {
        if self.text.part == Part::Call {
            self.text.calls.discard();
            self.text.enter(self.text.before_call);
        }
    }

    /// Emits what was held back, for an output that ends without a stop. A tool call that is not complete is text.
    pub fn finish(&mut self, emit: &mut dyn FnMut(Event<'_>)) {
        self.text.push(self.detokenizer.finish(), emit);
        self.text.leave(emit);
        self.text.enter(Part::Answer);
    }

    /// Why the output ended, once it has.
    pub fn stopped(&self) -> Option<StopReason> {
        self.text.stopped
    }

    /// Whether the next text belongs to the thinking.
    pub fn is_thinking(&self) -> bool {
        matches!(self.text.part, Part::Name { .. } | Part::Thought)
    }

    /// Whether a tool call has begun and not ended.
    pub fn is_calling(&self) -> bool {
        self.text.part == Part::Call
    }

    fn marker(&self, id: u32) -> Option<Marker> {
        self.markers
            .iter()
            .find(|(known, _)| *known == Some(id))
            .map(|(_, marker)| *marker)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Answer,
    /// The channel's name, of which so many bytes agreed with `THOUGHT`.
    Name {
        matched: usize,
    },
    Thought,
    Call,
}

/// Gives each piece of text to the part it belongs to.
#[derive(Debug)]
struct Sorter {
    part: Part,
    /// Where a tool call returns to.
    before_call: Part,
    /// A newline that ends a thought is the template's; this one waits for what follows.
    held_newline: bool,
    calls: ToolCallParser,
    stops: StopStrings,
    stopped: Option<StopReason>,
}

impl Sorter {
    fn new(options: &OutputOptions) -> Self {
        let (part, before_call) = (Part::Answer, Part::Answer);
        Sorter {
            part,
            before_call,
            held_newline: false,
            calls: ToolCallParser::new(&options.tools),
            stops: StopStrings::new(&options.stop_strings),
            stopped: None,
        }
    }

    fn push(&mut self, piece: &str, emit: &mut dyn FnMut(Event<'_>)) {
        if piece.is_empty() || self.stopped.is_some() {
            return;
        }
        match self.part {
            Part::Answer | Part::Call => self.calls(emit, |calls, sink| calls.push(piece, sink)),
            Part::Name { matched } => self.push_name(matched, piece, emit),
            Part::Thought => self.push_thought(piece, emit),
        }
    }

    /// Lets the parser of calls take something, and gives what it finds to the part around the call.
    fn calls(
        &mut self,
        emit: &mut dyn FnMut(Event<'_>),
        take: impl FnOnce(&mut ToolCallParser, &mut dyn FnMut(Piece<'_>)),
    ) {
        let around = if self.part == Part::Call {
            self.before_call
        } else {
            self.part
        };
        let (stops, held_newline) = (&mut self.stops, &mut self.held_newline);
        let mut found = None;
        take(&mut self.calls, &mut |piece| match piece {
            // After a stop nothing counts any more.
            _ if found.is_some() => {}
            Piece::Text(text) if around == Part::Thought => push_thought(held_newline, text, emit),
            Piece::Text(text) => found = stops.push(text, &mut |text| emit(Event::Answer(text))),
            Piece::Call {
                name,
                arguments,
                raw,
            } => {
                stops.flush(&mut |text| emit(Event::Answer(text)));
                emit(Event::ToolCall {
                    name,
                    arguments,
                    raw,
                });
            }
        });
        if let Some(index) = found {
            self.stopped = Some(StopReason::Text(index));
            self.enter(Part::Answer);
            emit(Event::Stop(StopReason::Text(index)));
        }
    }

    /// Reads the channel's name; text of a channel that is not the thought's is thinking from its first letter.
    fn push_name(&mut self, matched: usize, piece: &str, emit: &mut dyn FnMut(Event<'_>)) {
        let expected = &THOUGHT[matched..];
        if let Some(thinking) = piece.strip_prefix(expected) {
            self.part = Part::Thought;
            self.push_thought(thinking, emit);
        } else if expected.starts_with(piece) {
            self.part = Part::Name {
                matched: matched + piece.len(),
            };
        } else {
            self.part = Part::Thought;
            self.push_thought(&THOUGHT[..matched], emit);
            self.push_thought(piece, emit);
        }
    }

    fn push_thought(&mut self, piece: &str, emit: &mut dyn FnMut(Event<'_>)) {
        push_thought(&mut self.held_newline, piece, emit);
    }

    fn release_newline(&mut self, emit: &mut dyn FnMut(Event<'_>)) {
        if std::mem::take(&mut self.held_newline) {
            emit(Event::Thinking("\n"));
        }
    }

    fn pass(&mut self, marker: Marker, emit: &mut dyn FnMut(Event<'_>)) {
        if self.stopped.is_some() {
            return;
        }
        match (marker, self.part) {
            (Marker::ChannelOpens, _) => {
                self.leave(emit);
                self.enter(Part::Name { matched: 0 });
            }
            (Marker::ChannelCloses, _) => {
                self.held_newline = false;
                self.leave(emit);
                self.enter(Part::Answer);
            }
            (Marker::CallOpens, before) => {
                self.leave(emit);
                self.before_call = match before {
                    Part::Call => self.before_call,
                    // A call where a channel's name should be: the channel is thinking all the same.
                    Part::Name { .. } => Part::Thought,
                    Part::Answer | Part::Thought => before,
                };
                if self.stopped.is_none() {
                    self.calls(emit, |calls, sink| calls.open(sink));
                    self.enter(Part::Call);
                }
            }
            (Marker::CallCloses, Part::Call) => {
                self.calls(emit, |calls, sink| calls.close(sink));
                self.enter(self.before_call);
            }
            // A closing marker without a call has no text to speak of.
            (Marker::CallCloses, _) => {}
        }
    }

    fn enter(&mut self, part: Part) {
        self.part = part;
    }

    /// Emits what the part still holds.
    fn leave(&mut self, emit: &mut dyn FnMut(Event<'_>)) {
        match self.part {
            Part::Name { .. } => {}
            Part::Thought => self.release_newline(emit),
            Part::Answer | Part::Call => {
                self.calls(emit, |calls, sink| calls.finish(sink));
                if self.stopped.is_none() {
                    self.stops.flush(&mut |text| emit(Event::Answer(text)));
                }
            }
        }
    }

    fn stop(&mut self, reason: StopReason, emit: &mut dyn FnMut(Event<'_>)) {
        if self.stopped.is_none() {
            self.leave(emit);
        }
        // What was held may have contained a stop string.
        if self.stopped.is_none() {
            self.enter(Part::Answer);
            self.stopped = Some(reason);
            emit(Event::Stop(reason));
        }
    }
}

/// Text of a thought, but for a newline at its end.
fn push_thought(held_newline: &mut bool, piece: &str, emit: &mut dyn FnMut(Event<'_>)) {
    if piece.is_empty() {
        return;
    }
    if std::mem::take(held_newline) {
        emit(Event::Thinking("\n"));
    }
    let kept = piece.strip_suffix('\n');
    *held_newline = kept.is_some();
    let thinking = kept.unwrap_or(piece);
    if !thinking.is_empty() {
        emit(Event::Thinking(thinking));
    }
}
