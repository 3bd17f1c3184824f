//! Names, keys, versions and revisions in paths and objects.

use steersman_machinery::{GroupVersion, ObjectKey, Revision, name};

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let is_label = name::dns1123_label(text).is_empty();
    assert!(!is_label || name::dns1123_subdomain(text).is_empty(), "{text:?}: a label is a subdomain");
    assert!(name::dns1035_label(text).is_empty() <= is_label, "{text:?}: the older labels are labels");
    assert!(!is_label || name::path_segment(text).is_empty(), "{text:?}: a label is a segment of a path");
    let _ = (name::qualified(text), name::label_value(text), name::config_key(text));
    assert!(text.starts_with(name::generated_base(text)), "{text:?}");
    if let Some(version) = GroupVersion::parse(text) {
        assert_eq!(version.to_string(), text.trim_start_matches('/'), "{text:?}");
    }
    if let Ok(revision) = Revision::parse(text) {
        assert_eq!(Revision::parse(&revision.to_string()), Ok(revision), "{text:?}");
    }
    let key = ObjectKey::parse(text);
    assert_eq!(ObjectKey::parse(&key.to_string()), key, "{text:?}");
}
