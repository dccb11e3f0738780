//! The longest context that leaves room for something else.

use super::{ModelBytes, plan_budget};
use crate::config::Config;
use crate::{EngineError, Options};

/// The most tokens of context that leave at least `min_slots` retained slots in each layer at a full context.
///
/// A longer context leaves fewer slots, but for a block where a default chunk happens to become shorter; so bisection finds the longest
/// one or one a few tokens short of it, which the plan then keeps in any case.
///
/// # Errors
/// [`EngineError::Option`], and [`EngineError::Budget`] with the budget that a context of one token would take.
pub fn largest_context(
    config: &Config,
    model: ModelBytes,
    options: &Options,
    min_slots: u32,
) -> Result<u32, EngineError> {
    let wanted = min_slots as usize * config.n_layers();
    let plan = |context: u32| {
        let options = Options {
            max_context: Some(context),
            ..options.clone()
        };
        let budget = plan_budget(config, model, &options)?;
        match wanted.saturating_sub(budget.slots) {
            0 => Ok(()),
            missing => Err(EngineError::Budget {
                needed: budget.total_bytes + (missing * budget.blocks.bytes) as u64,
                budget: budget.memory_bytes,
                advice: format!("give a larger --memory; {min_slots} slots a layer are wanted"),
            }),
        }
    };
    plan(1)?;
    let (mut fits, mut too_long) = (1, config.max_position as u32 + 1);
    while too_long - fits > 1 {
        let middle = fits + (too_long - fits) / 2;
        match plan(middle) {
            Ok(()) => fits = middle,
            Err(_) => too_long = middle,
        }
    }
    Ok(fits)
}
