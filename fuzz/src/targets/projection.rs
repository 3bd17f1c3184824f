//! Reads parts of an object without the rest: the paths are in the first line, the JSON in the rest.

use serde_json::Value;
use steersman_server::projection::Projection;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (paths, json) = text.split_once('\n').unwrap_or(("a.b,c[]", text));
    let paths: Vec<&str> = paths.split(',').collect();
    let whole = serde_json::from_str::<Value>(json);
    let part = Projection::of(&paths).read(json.as_bytes());
    if let Ok(whole) = &whole {
        let part = part.unwrap_or_else(|error| panic!("{error}: {json}"));
        for path in paths.iter().filter(|path| !path.ends_with("[]") && !path.is_empty()) {
            let keys: Vec<&str> = path.split('.').collect();
            assert_eq!(steersman_machinery::value::at(&part, &keys), steersman_machinery::value::at(whole, &keys), "{path}");
        }
    }
    let _ = Projection::without_managers().read(json.as_bytes());
    let _ = Projection::nothing().read(json.as_bytes());
}
