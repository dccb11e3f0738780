//! The buffers of a detokenizer stop growing.

use crate::compile::tests::{open, small};
use crate::detokenize::Detokenizer;

#[test]
fn a_warm_detokenizer_keeps_its_buffers() {
    let tokenizer = open(&small()).expect("the small tokenizer");
    let ids = tokenizer.encode("abc \u{1f680}\u{1f680} ab\n\nxyz<eos>");
    let mut detokenizer = Detokenizer::new(&tokenizer, false);
    let mut buffers = None;
    for round in 0..1_000 {
        ids.iter()
            .for_each(|id| assert!(detokenizer.push(*id).len() < 64));
        // Addresses and capacities: no buffer was replaced, hence nothing was allocated.
        let now = (
            detokenizer.run.as_ptr(),
            detokenizer.run.capacity(),
            detokenizer.piece.as_ptr(),
            detokenizer.piece.capacity(),
        );
        if round > 0 {
            assert_eq!(Some(now), buffers);
        }
        buffers = Some(now);
    }
}
