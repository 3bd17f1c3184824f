//! FieldsV1: two documents with sets of fields. Written sets are read back, and the operations are those of sets.

use crate::input;
use steersman_schema::fields::FieldSet;

pub fn run(data: &[u8]) {
    let sets: Vec<FieldSet> = input::documents(data)
        .into_iter()
        .filter_map(input::tree)
        .filter_map(|tree| FieldSet::from_value(&tree).ok())
        .collect();
    for set in &sets {
        let written = set.to_value();
        let read = FieldSet::from_value(&written).unwrap_or_else(|error| panic!("{written}: {error}"));
        assert_eq!(&read, set, "{written}");
        assert_eq!(set.paths().len(), set.len());
        assert!(set.paths().iter().all(|path| set.contains(&path.0)), "{written}");
        assert!(set.leaves().is_subset(set), "{written}");
        for path in set.paths() {
            let _ = path.to_string();
        }
    }
    let [a, b, ..] = sets.as_slice() else { return };
    let (union, both) = (a.union(b), a.intersection(b));
    assert_eq!(union, b.union(a));
    assert_eq!(both, b.intersection(a));
    assert!(a.is_subset(&union) && both.is_subset(a) && both.is_subset(b));
    assert_eq!(union.len() + both.len(), a.len() + b.len());
    let difference = a.difference(b);
    assert!(difference.intersection(b).is_empty());
    assert_eq!(difference.union(&both), *a);
    assert!(a.recursive_difference(b).is_subset(&difference));
}
