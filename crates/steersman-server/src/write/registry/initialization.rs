//! The steps after an object that waits for initializers is stored: the wait continues, or the object has failed and is
//! deleted.

use crate::shared::conversion;
use crate::shared::operation::Operation;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::initializers::{Configured, field};
use crate::write::registry::commit;
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::Object;
use steersman_storage::WriteError;

/// Called when an object is stored; `before` is its previous state. An object with a result is deleted, whatever its
/// finalizers: no client that respects them can have seen it.
///
/// # Errors
/// When the object cannot be deleted. The server retries that later.
pub(super) async fn stored(
    state: &State,
    operation: &Operation<'_>,
    before: Option<&Object>,
    stored: &Arc<Object>,
) -> Result<(), Failure> {
    let Some(configured) = &state.initializers else { return Ok(()) };
    let was_unfinished = before.is_some_and(|before| before.meta().is_uninitialized());
    if !was_unfinished && !stored.meta().is_uninitialized() {
        return Ok(());
    }
    if let Some(before) = before.filter(|_| was_unfinished) {
        count(state, configured, before, stored)?;
    }
    if stored.meta().is_uninitialized() && field::result(&conversion::parse(stored)?).is_some() {
        remove(state, operation, stored).await?;
    }
    configured.changed.notify_one();
    Ok(())
}

/// Called when an object is removed.
pub(super) fn removed(state: &State, object: &Object) {
    if let Some(configured) = state.initializers.as_ref().filter(|_| object.meta().is_uninitialized()) {
        configured.changed.notify_one();
    }
}

/// Deletes an object that could not be initialized, unless it is already gone.
///
/// # Errors
/// When the store cannot be written.
pub(crate) async fn remove(state: &State, operation: &Operation<'_>, failed: &Arc<Object>) -> Result<(), Failure> {
    let mut current = failed.clone();
    loop {
        match commit::remove(state, operation, &current).await? {
            Ok(_) => return Ok(()),
            // A failed object stays failed, whatever else is written to it.
            Err(WriteError::Conflict { current: Some(changed) }) if changed.meta().uid() == failed.meta().uid() => {
                current = changed;
            }
            Err(WriteError::Conflict { .. }) => return Ok(()),
            Err(error) => return Err(Failure::of_write(&error, &operation.group_resource(), &failed.key.name)),
        }
    }
}

/// Counts how long the object waited for the initializer that was first before.
fn count(state: &State, configured: &Configured, before: &Object, stored: &Object) -> Result<(), Failure> {
    let Some(turn) = field::turn(&conversion::parse(before)?) else { return Ok(()) };
    let now = conversion::parse(stored)?;
    let is_still_first = field::result(&now).is_none() && field::turn(&now).is_some_and(|now| now.name == turn.name);
    if !is_still_first {
        let waited = Duration::try_from(turn.since.duration_until(state.now())).unwrap_or_default();
        configured.figures.waited(&turn.name, waited);
    }
    Ok(())
}
