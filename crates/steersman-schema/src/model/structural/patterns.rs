//! Checks that every pattern is valid, and that all of them together can be compiled within bounds.

use crate::model::structural::node::Node;
use crate::values::pattern::{DEFINITION_WEIGHT_MAX, Pattern};
use std::collections::BTreeSet;
use steersman_machinery::budget::Budget;
use steersman_machinery::field::{Error, Path};

/// The minimum weight of an invalid pattern, so that the number of reported errors is bounded.
const FAULT_WEIGHT: usize = 1000;
/// The steps that reading a pattern takes, and those that it takes for each byte.
const READING_STEPS: usize = 500;
const BYTE_STEPS: usize = 20;

/// Judges the patterns of a definition.
pub(crate) fn check(root: Node<'_>, path: &Path, budget: &Budget, errors: &mut Vec<Error>) {
    let mut patterns = Patterns { left: Some(DEFINITION_WEIGHT_MAX), seen: BTreeSet::new(), budget };
    patterns.walk(root, false, path, errors);
}

struct Patterns<'v> {
    /// The remaining weight. None: the limit is exceeded, and the rest is not parsed.
    left: Option<usize>,
    /// Valid patterns. Repeating one costs nothing: it is compiled once.
    seen: BTreeSet<&'v str>,
    budget: &'v Budget,
}

impl<'v> Patterns<'v> {
    fn walk(&mut self, node: Node<'v>, is_nested: bool, path: &Path, errors: &mut Vec<Error>) {
        self.pattern(node.text("pattern"), path, errors);
        if let Some(items) = node.node("items") {
            self.walk(items, is_nested, &path.child("items"), errors);
        }
        for (name, property) in node.properties() {
            self.walk(property, is_nested, &path.child("properties").key(name), errors);
        }
        // `additionalProperties` is not allowed in alternatives.
        if let Some(additional) = node.node("additionalProperties").filter(|_| !is_nested) {
            self.walk(additional, is_nested, &path.child("additionalProperties"), errors);
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            for (index, each) in node.nodes(key) {
                self.walk(each, true, &path.child(key).index(index), errors);
            }
        }
        if let Some(not) = node.node("not") {
            self.walk(not, true, &path.child("not"), errors);
        }
    }

    fn pattern(&mut self, text: &'v str, path: &Path, errors: &mut Vec<Error>) {
        let Some(left) = self.left.filter(|_| !text.is_empty() && !self.seen.contains(text)) else { return };
        if self.budget.work(READING_STEPS + text.len() * BYTE_STEPS).is_err() {
            self.left = None;
            return;
        }
        let fault = match Pattern::check(text) {
            Ok(weight) => {
                self.seen.insert(text);
                self.left = left.checked_sub(weight);
                self.left.is_none().then(|| {
                    format!(
                        "is one pattern too many: compiled, those of one schema may have {DEFINITION_WEIGHT_MAX} transitions together; lower their repetitions, and limit lengths with maxLength"
                    )
                })
            }
            Err(error) => {
                // Parsing it was work, too.
                self.left = left.checked_sub(text.len().max(FAULT_WEIGHT));
                Some(format!("must be a valid regular expression, but isn't: {error}"))
            }
        };
        errors.extend(fault.map(|detail| Error::invalid(&path.child("pattern"), text, detail)));
    }
}
