//! The smallest case that shows a difference.

use crate::difference::Difference;
use crate::requests::case::Case;
use crate::run::Servers;

/// Leaves out changes and parameters as long as the same difference shows.
pub(crate) async fn shrink(asked: &Servers<'_>, case: &Case, difference: &Difference) -> Case {
    let mut smallest = case.clone();
    loop {
        let fewer_mutations = (0..smallest.mutations.len()).map(|index| {
            let mut case = smallest.clone();
            case.mutations.remove(index);
            case
        });
        let fewer_parameters = (0..smallest.query.len()).filter(|index| smallest.query[*index].0 != "dryRun");
        let fewer_parameters = fewer_parameters.map(|index| {
            let mut case = smallest.clone();
            case.query.remove(index);
            case
        });
        let candidates: Vec<Case> = fewer_mutations.chain(fewer_parameters).collect();
        let mut found = None;
        for candidate in candidates {
            let (.., shown) = asked.ask(&candidate).await;
            if shown.is_some_and(|shown| shown.class == difference.class && shown.detail == difference.detail) {
                found = Some(candidate);
                break;
            }
        }
        match found {
            Some(case) => smallest = case,
            None => return smallest,
        }
    }
}
