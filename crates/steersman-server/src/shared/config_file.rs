//! Reads the YAML of a configuration file that a flag names. Its errors are one line with the position of the mistake,
//! and quote nothing of the file: the lines around a mistake may hold a password or a token.

use serde::de::DeserializeOwned;

/// # Errors
/// With the line and the column.
pub(crate) fn parse<T: DeserializeOwned>(yaml: &str) -> Result<T, String> {
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(yaml, options).map_err(|error| {
        let error = error.to_string();
        let line = error.lines().next().unwrap_or("not readable");
        line.strip_prefix("error: ").unwrap_or(line).to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn an_error_names_the_line_and_quotes_nothing() {
        let error = parse::<BTreeMap<String, u32>>("a: 1\n# password: hunter2\nb: [\nc: 3\n").unwrap_err();
        assert!(error.contains("line ") && !error.starts_with("error"), "{error}");
        assert!(!error.contains("hunter2") && !error.contains('\n'), "{error}");
    }
}
