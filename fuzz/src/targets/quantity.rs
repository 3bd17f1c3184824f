//! Quantities: canonical texts, their order and their sums.

use crate::input::documents;
use steersman_machinery::quantity::Quantity;

pub fn run(data: &[u8]) {
    let texts: Vec<&str> = documents(data).into_iter().filter_map(|text| std::str::from_utf8(text).ok()).collect();
    let mut parsed = Vec::new();
    for text in &texts {
        let canonical = Quantity::canonical(text);
        let quantity = Quantity::parse(text);
        assert_eq!(canonical.is_ok(), quantity.is_ok(), "{text:?} has a canonical form exactly if it can be read");
        let (Ok(canonical), Ok(quantity)) = (canonical, quantity) else { continue };
        let again = Quantity::canonical(&canonical).expect("a canonical text is a quantity");
        assert_eq!(again, canonical, "{text:?}: the canonical form is stable");
        let read = Quantity::parse(&canonical).expect("a canonical text is a quantity");
        assert_eq!(read.nanos(), quantity.nanos(), "{text:?}: the canonical form {canonical:?} is the same amount");
        let printed = quantity.to_string();
        let back = Quantity::parse(&printed).expect("what is printed can be read");
        assert_eq!(back.nanos(), quantity.nanos(), "{text:?}: printed as {printed:?} it is the same amount");
        let _ = (quantity.to_whole(), quantity.is_whole(), quantity.to_f64());
        parsed.push(quantity);
    }
    for pair in parsed.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        assert_eq!(a.plus(b).nanos(), b.plus(a).nanos(), "addition commutes");
        let _ = a.minus(b);
    }
}
