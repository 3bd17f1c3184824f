//! Templates: `{{name}}` is a variable. Text between `{{#webhook}}` and `{{/webhook}}` is included only if the section
//! `webhook` is enabled, and text between `{{^webhook}}` and `{{/webhook}}` only if it is not. A line with nothing but
//! a mark is removed.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Template {
    variables: BTreeMap<&'static str, String>,
    sections: BTreeMap<&'static str, Section>,
}

/// Whether the text of a section becomes part of the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Section {
    Dropped,
    Kept,
}

impl Template {
    pub(super) fn variable(mut self, name: &'static str, value: &str) -> Template {
        self.variables.insert(name, value.to_owned());
        self
    }

    pub(super) fn section(mut self, name: &'static str, section: Section) -> Template {
        self.sections.insert(name, section);
        self
    }

    /// The text with its variables and sections filled in.
    pub(super) fn fill(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, section) in &self.sections {
            let (with, without) = match section {
                Section::Dropped => (Section::Dropped, Section::Kept),
                Section::Kept => (Section::Kept, Section::Dropped),
            };
            text = filled(&text, &format!("{{{{#{name}}}}}"), &format!("{{{{/{name}}}}}"), with);
            text = filled(&text, &format!("{{{{^{name}}}}}"), &format!("{{{{/{name}}}}}"), without);
        }
        for (name, value) in &self.variables {
            text = text.replace(&format!("{{{{{name}}}}}"), value);
        }
        text
    }
}

/// The text with what is between the marks kept or dropped, and without the marks.
fn filled(text: &str, begin: &str, end: &str, section: Section) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(begin) {
        // The end belongs to the nearest beginning, of either kind.
        let Some((inside, after)) = after.split_once(end) else { break };
        filled.push_str(before);
        let (inside, after) = match (before.ends_with('\n') || before.is_empty(), inside.strip_prefix('\n')) {
            // The marks are on lines of their own.
            (true, Some(lines)) => (lines, after.strip_prefix('\n').unwrap_or(after)),
            _ => (inside, after),
        };
        if section == Section::Kept {
            filled.push_str(inside);
        }
        rest = after;
    }
    filled.push_str(rest);
    filled
}
