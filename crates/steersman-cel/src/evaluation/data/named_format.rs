//! `format.dns1123Label()` and similar: named checks that return errors.

use steersman_machinery::name;
use steersman_schema::format;

/// A named check.
#[derive(Debug)]
pub struct NamedFormat {
    name: &'static str,
    pub(crate) check: fn(&str) -> Vec<String>,
    /// The length of its pattern for cost estimation.
    pub(crate) pattern_chars: u64,
}

static FORMATS: [NamedFormat; 13] = [
    NamedFormat { name: "byte", check: |text| strict(text, "byte", "invalid base64"), pattern_chars: 84 },
    NamedFormat { name: "date", check: |text| strict(text, "date", "invalid date"), pattern_chars: 71 },
    NamedFormat { name: "datetime", check: |text| strict(text, "datetime", "invalid datetime"), pattern_chars: 71 },
    NamedFormat { name: "dns1035Label", check: name::dns1035_label, pattern_chars: 30 },
    NamedFormat { name: "dns1035LabelPrefix", check: |text| name::dns1035_label(&masked(text)), pattern_chars: 30 },
    NamedFormat { name: "dns1123Label", check: name::dns1123_label, pattern_chars: 30 },
    NamedFormat { name: "dns1123LabelPrefix", check: |text| name::dns1123_label(&masked(text)), pattern_chars: 30 },
    NamedFormat { name: "dns1123Subdomain", check: name::dns1123_subdomain, pattern_chars: 60 },
    NamedFormat {
        name: "dns1123SubdomainPrefix",
        check: |text| name::dns1123_subdomain(&masked(text)),
        pattern_chars: 60,
    },
    NamedFormat { name: "labelValue", check: name::label_value, pattern_chars: 40 },
    NamedFormat { name: "qualifiedName", check: name::qualified, pattern_chars: 60 },
    NamedFormat {
        name: "uri",
        check: |text| match format::is_match("uri", text) {
            true => Vec::new(),
            false if text.is_empty() => vec!["parse \"\": empty url".to_owned()],
            false => vec![format!("parse {text:?}: invalid URI for request")],
        },
        pattern_chars: 1103,
    },
    NamedFormat {
        name: "uuid",
        check: |text| strict(text, "uuid", "does not match the UUID format"),
        pattern_chars: 70,
    },
];

fn strict(text: &str, format: &str, fault: &str) -> Vec<String> {
    if format::is_match(format, text) { Vec::new() } else { vec![fault.to_owned()] }
}

/// Masks a trailing dash: the prefix of a generated name may end with one, because more follows.
fn masked(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if text.len() > 1 => {
            let mut kept = rest.to_owned();
            kept.pop();
            kept + "a"
        }
        _ => text.to_owned(),
    }
}

pub(crate) fn find(name: &str) -> Option<&'static NamedFormat> {
    FORMATS.iter().find(|format| format.name == name)
}
