//! The cases that the benches time: the bits of `portable` on every instruction set and on any number of threads.

use ouzel_kernels::{Isa, Pool};

use crate::cases::{self, Case, Size};
use crate::data::{Random, assert_bits, others, seed};

/// Output rows for several tasks, one of them not whole, and positions for three spans, the last not whole: a machine that is
/// emulated runs these too.
const SIZE: Size = Size::Cut {
    rows: 1000,
    positions: 4200,
};

#[test]
fn the_models_shapes_have_one_set_of_bits() {
    let mut random = Random(seed());
    let alone = Pool::new(1).expect("the caller is a thread");
    let shared = Pool::new(3).expect("the system starts two threads");
    for (name, shape) in cases::all() {
        assert!(shape.bytes() > 0, "{name}");
        // Operands may change as a case runs, so each run has its own, drawn alike.
        let seed = random.next();
        let run = |isa, pool: &Pool| {
            let mut case = Case::new(&mut Random(seed), shape, SIZE);
            case.run(isa, pool).to_vec()
        };
        let portable = run(Isa::Portable, &alone);
        assert!(portable.iter().all(|y| y.is_finite()), "{name}");
        assert!(portable.iter().any(|y| *y != 0.0), "{name}");
        for isa in others() {
            let what = format!("{name} on {}", isa.name());
            assert_bits(&what, &run(isa, &alone), &portable);
            assert_bits(
                &format!("{what}, three threads"),
                &run(isa, &shared),
                &portable,
            );
        }
    }
}

#[test]
fn copies_hold_what_the_first_one_does_not_change() {
    let mut random = Random(seed());
    let pool = Pool::new(1).expect("the caller is a thread");
    let shape = cases::Shape::Attend {
        heads: 1,
        g: 2,
        d: 16,
        n: 70,
    };
    let mut case = Case::new(&mut random, shape, Size::Bytes(20_000));
    assert_eq!(shape.bytes(), 2 * 2 * 70 * 16);
    let first = case.run(Isa::Portable, &pool).to_vec();
    for turn in 1..6 {
        let again = case.run(Isa::Portable, &pool);
        assert_bits(&format!("turn {turn} of five copies"), again, &first);
    }
}
