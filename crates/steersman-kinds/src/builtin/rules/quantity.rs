//! Quantities of resources in an object.

use steersman_machinery::Value;
use steersman_machinery::value::Map;

/// Rounds the quantities of a map of resources up to thousandths.
pub fn round_up(object: &mut Map, path: &[&str]) {
    let Some((last, way)) = path.split_last() else { return };
    let mut holder = object;
    for name in way {
        let Some(next) = holder.get_mut(*name).and_then(Value::as_object_mut) else { return };
        holder = next;
    }
    for (_, amount) in holder.get_mut(*last).and_then(Value::as_object_mut).into_iter().flatten() {
        let nanos = amount.as_str().and_then(|text| text.strip_suffix(['n', 'u'])?.parse::<u64>().ok());
        if let (Some(number), Some(text)) = (nanos, amount.as_str()) {
            let per_milli = if text.ends_with('n') { 1_000_000 } else { 1_000 };
            *amount = Value::from(format!("{}m", number.div_ceil(per_milli)));
        }
    }
}
