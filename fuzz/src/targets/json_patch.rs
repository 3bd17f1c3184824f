//! JSON patches: a document with the object, one with the patch. A result can be read again, and applying is repeatable.

use steersman_machinery::budget::Budget;
use crate::input;
use steersman_machinery::value::normalize_numbers;
use steersman_schema::decode;
use steersman_schema::json_patch::Patch;

pub fn run(data: &[u8]) {
    let parts = input::documents(data);
    let [object, patch] = parts.as_slice() else { return };
    let Ok(patch) = Patch::parse(patch, &Budget::unlimited()) else { return };
    let Some(object) = input::tree(object) else { return };
    let result = patch.apply(&object, &Budget::unlimited());
    assert_eq!(result, patch.apply(&object, &Budget::unlimited()), "applying twice to one object gives one result");
    let Ok(result) = result else { return };
    if patch.is_empty() {
        assert_eq!(result, object);
    }
    let printed = result.to_string();
    let read = decode::document(printed.as_bytes(), &Budget::unlimited()).unwrap_or_else(|error| panic!("{error}: {printed}"));
    let mut normal = result;
    normalize_numbers(&mut normal);
    assert_eq!(read.value, normal, "the result is a document");
}
