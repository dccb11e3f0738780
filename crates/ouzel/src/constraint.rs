//! What an answer must look like, as far as the choice of a token goes.

/// Says at each step which tokens may come next: a grammar, a schema, a list of tool calls.
///
/// Asked before each token is chosen, also in a greedy answer, and told which one was.
pub trait TokenConstraint: Send {
    /// The tokens that may come next: token `id` is bit `id % 32` of word `id / 32`, and ids beyond the last word may not come. `None`
    /// where every token may. Where no token may, the answer ends.
    fn allowed(&mut self) -> Option<&[u32]>;

    /// The answer goes on with this token, which was allowed.
    fn accept(&mut self, id: u32);

    /// Why no token may come, where that is no end of an answer; the answer fails then.
    fn error(&self) -> Option<&str> {
        None
    }
}
