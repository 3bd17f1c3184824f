//! Objects at rest: headers made from JSON and from trees agree, stored bytes are read back, and damaged ones are
//! refused.

use crate::input;
use steersman_machinery::{Draft, Header, Object, ObjectKey, Revision};

pub fn run(data: &[u8]) {
    let key = ObjectKey::namespaced("ns", "name");
    if let Ok(object) = Object::decode(key.clone(), Revision(7), data) {
        look(&object);
        let moved = object.copy_at(Revision(123_456_789));
        look(&moved);
        assert_eq!(moved.meta().uid(), object.meta().uid());
    }
    let json = bytes::Bytes::copy_from_slice(data);
    let Ok(draft) = Draft::read(json) else { return };
    let stored = draft.encode();
    let object = Object::decode(key, Revision(7), &stored).expect("what was encoded can be read");
    look(&object);
    if let Some(tree) = input::tree(data)
        && serde_json::from_slice::<serde_json::Value>(data).is_ok_and(|read| read == tree)
    {
        let (of_tree, of_json) = (Header::of(&tree, &[]), Header::read(data, &[]));
        if let Ok(of_json) = of_json {
            assert_eq!(summary(of_tree.meta()), summary(of_json.meta()), "{tree}");
        }
    }
}

fn look(object: &Object) {
    let _ = (summary(object.meta()), object.label("a"), object.json().len());
}

fn summary(meta: steersman_machinery::Meta<'_>) -> String {
    let labels: Vec<_> = meta.labels().collect();
    let owners: Vec<_> = meta.owner_references().map(|owner| format!("{owner:?}")).collect();
    let finalizers: Vec<_> = meta.finalizers().collect();
    format!("{labels:?} {owners:?} {finalizers:?} {} {:?} {}", meta.uid(), meta.deletion_timestamp(), meta.api_version())
}
