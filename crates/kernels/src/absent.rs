//! Stands in for the instruction sets of other processor families than the target's.

use crate::isa::Op;

/// Why it cannot run here.
pub(crate) fn missing() -> Option<&'static str> {
    Some("built for another processor family")
}

/// Refuses.
pub(crate) fn run<O: Op>(_op: O) -> O::Output {
    panic!("this instruction set belongs to another processor family; ask Isa::available");
}
