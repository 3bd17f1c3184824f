//! Label and field selectors: a printed selector is read back as the same.

use steersman_machinery::selector::{Fields, Labels};

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(labels) = Labels::parse(text) {
        let printed = labels.to_string();
        let again = Labels::parse(&printed).unwrap_or_else(|error| panic!("{text:?} prints as {printed:?}: {error}"));
        assert_eq!(again, labels, "{text:?} prints as {printed:?}");
        let absent = labels.matches(|_| None);
        assert!(!labels.is_everything() || absent, "{text:?}");
        let _ = labels.matches(|key| Some(if key.len() % 2 == 0 { "a" } else { "5" }));
    }
    if let Ok(fields) = Fields::parse(text) {
        for requirement in &fields.requirements {
            let _ = fields.exact(&requirement.field);
        }
        let holds = fields.matches(|_| "a".into());
        assert!(!fields.is_everything() || holds, "{text:?}");
    }
}
