//! What reads files that are no plain text for the page, handed in by whoever has a reader: this room has none.

/// The longest file that is taken.
pub const MAX_DOCUMENT_BYTES: usize = 16 << 20;
/// The longest text that is taken of one; a conversation of the longest context is shorter.
pub const MAX_TEXT_BYTES: usize = 2 << 20;

/// Reads files. All calls may take a while, and come from threads that may wait.
pub trait Documents: Send + Sync + 'static {
    /// The text of a PDF file, its pages with an empty line between them.
    ///
    /// # Errors
    /// One line that says what is wrong with it.
    fn text_of_pdf(&self, pdf: Vec<u8>) -> Result<String, String>;
}
