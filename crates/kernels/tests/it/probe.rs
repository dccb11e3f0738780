//! The probes do the work that they claim; how fast, no test asks.

use ouzel_kernels::{Isa, probe};

#[test]
fn every_whole_line_of_the_streams_is_read() {
    // Sums wrap where words are large, and a rest that four streams cannot share is left out.
    let bytes: Vec<u8> = (0..10_000u32).map(|i| (i * 37 % 251) as u8).collect();
    for len in [0, 8, 255, 256, 257, 512, 4096, 10_000] {
        let whole = &bytes[..len / 256 * 256];
        let words = whole.as_chunks::<8>().0.iter();
        let expected = words.fold(0u64, |sum, word| {
            sum.wrapping_add(u64::from_le_bytes(*word))
        });
        for isa in Isa::available() {
            let actual = probe::read_sum(isa, &bytes[..len]);
            assert_eq!(actual, expected, "{len} bytes, {}", isa.name());
        }
    }
}

#[test]
fn multiply_adds_grow_with_the_iterations() {
    for isa in Isa::available() {
        for peak in [probe::int8_peak, probe::f32_peak] {
            let one = peak(isa, 1);
            assert!(one > 0, "{}", isa.name());
            assert_eq!(peak(isa, 0), 0, "{}", isa.name());
            assert_eq!(peak(isa, 1000), 1000 * one, "{}", isa.name());
        }
    }
}
