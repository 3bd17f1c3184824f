//! Tries the rules that a definition has in CEL on an object: briefly where the request is polled, and on a thread for heavy requests if that
//! is not enough. A rule may be costly for a small object too.

use crate::shared::operation::Operation;
use steersman_kinds::strategy::Effort;
use steersman_machinery::{Value, field};

/// Adds the faults that the rules find to those that are known. The client is warned of rules that do not hold for what an update does not
/// change.
pub(super) async fn judge(
    operation: &mut Operation<'_>,
    new: &Value,
    old: Option<&Value>,
    faults: &mut Vec<field::Error>,
) {
    let (strategy, version) = (operation.strategy(), operation.version());
    if !strategy.is_ready_to_judge(version) {
        operation.load.expect_more().await;
    }
    let brief = operation.load.is_light().then(|| strategy.judge(version, new, old, faults, Effort::Brief));
    let warnings = match brief.flatten() {
        Some(warnings) => warnings,
        None => {
            operation.load.expect_more().await;
            strategy.judge(version, new, old, faults, Effort::Whole).unwrap_or_default()
        }
    };
    warnings.into_iter().for_each(|warning| operation.warn(warning));
}
