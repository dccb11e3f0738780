//! Every operation through its public door: one case list, run on every instruction set that this machine has.
//!
//! Two yardsticks. Each instruction set must return the bits of `portable`; `portable` must agree with a naive f64 version written
//! inside the tests. `OUZEL_TEST_SEED` chooses other random data than the usual; the seed is printed.

mod attention;
mod cases;
mod data;
mod fast;
mod model_shapes;
mod probe;
mod products;
mod rows;

use ouzel_kernels::Isa;

#[test]
fn isas_run_and_skipped() {
    let run: Vec<_> = Isa::available().iter().map(|isa| isa.name()).collect();
    let skipped: Vec<_> = Isa::unavailable()
        .iter()
        .map(|(isa, why)| format!("{} ({why})", isa.name()))
        .collect();
    println!(
        "ISAs run: {}; skipped: {}",
        run.join(", "),
        skipped.join(", ")
    );
    assert_eq!(run.len() + skipped.len(), 4);
    assert_eq!(run[0], "portable");
    assert!(Isa::available().contains(&Isa::detect()));
}
