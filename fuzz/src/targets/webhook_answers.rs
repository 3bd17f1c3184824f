//! Answers of admission webhooks, and the patches in them.

use steersman_machinery::budget::Budget;
use steersman_schema::json_patch::Patch;
use steersman_server::fuzzing;

pub fn run(data: &[u8]) {
    if let Some(patch) = fuzzing::webhook_answer(data) {
        let _ = Patch::parse(&patch, &Budget::unlimited());
    }
}
