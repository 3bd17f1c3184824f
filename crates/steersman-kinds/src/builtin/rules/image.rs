//! References to images: `registry.example.com:5000/team/app:1.2@sha256:...`. The grammar is that of github.com/distribution/reference.

use regex::Regex;
use std::sync::LazyLock;

const NAME_BYTES_MAX: usize = 255;
/// The host that is meant if a reference has none, and a former name of it.
const DEFAULT_HOST: &str = "docker.io";
const FORMER_DEFAULT_HOST: &str = "index.docker.io";

static REFERENCE: LazyLock<Regex> = LazyLock::new(|| {
    let label = "(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])";
    let host = format!(r"(?:{label}(?:\.{label})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?");
    let component = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*";
    let name = format!("(?:{host}/)?(?<path>{component}(?:/{component})*)");
    let digest = "[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}";
    let pattern = format!("^{name}(?::(?<tag>[0-9A-Za-z_][0-9A-Za-z_.-]{{0,127}}))?(?:@(?<digest>{digest}))?$");
    Regex::new(&pattern).expect("invariant: the pattern is a regular expression")
});

/// The tag of an image: `latest` if it has neither a tag nor a digest. `None` if it has a digest alone, or is no reference.
pub fn tag(image: &str) -> Option<String> {
    let is_identifier = image.len() == 64 && image.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_identifier {
        return None;
    }
    let whole = with_host(image);
    let parts = REFERENCE.captures(&whole)?;
    let (tag, digest) = (parts.name("tag"), parts.name("digest"));
    if NAME_BYTES_MAX < parts["path"].len() || digest.is_some_and(|digest| !is_digest(digest.as_str())) {
        return None;
    }
    match (tag, digest) {
        (Some(tag), _) => Some(tag.as_str().to_owned()),
        (None, Some(_)) => None,
        (None, None) => Some("latest".to_owned()),
    }
}

/// A reference with the host that is meant. What stands before the first slash is a host if a path could not begin so.
fn with_host(image: &str) -> String {
    let (host, path) = match image.split_once('/') {
        Some((DEFAULT_HOST | FORMER_DEFAULT_HOST, path)) => (DEFAULT_HOST, path),
        Some((host, path))
            if host == "localhost" || host.contains(['.', ':']) || host.chars().any(char::is_uppercase) =>
        {
            (host, path)
        }
        _ => (DEFAULT_HOST, image),
    };
    let library = if host == DEFAULT_HOST && !path.contains('/') { "library/" } else { "" };
    format!("{host}/{library}{path}")
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    hex.len() == length && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_that_of_a_reference() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for (image, want) in [
            ("nginx", Some("latest")),
            ("nginx:latest", Some("latest")),
            ("host:5000/nginx", Some("latest")),
            ("Host/nginx", Some("latest")),
            ("localhost/nginx", Some("latest")),
            ("[::1]:5000/nginx:1", Some("1")),
            ("a--b/c__d.e", Some("latest")),
            ("nginx:1.2", Some("1.2")),
            ("host:5000/nginx:1.2", Some("1.2")),
            (&format!("nginx@{digest}"), None),
            (&format!("nginx:latest@{digest}"), Some("latest")),
            // No references.
            ("", None),
            ("Nginx", None),
            ("-", None),
            ("nginx:", None),
            ("nginx:-", None),
            ("a//b", None),
            ("a/B", None),
            ("a b", None),
            ("ä", None),
            (" nginx", None),
            ("nginx\n", None),
            ("nginx@sha256:abc", None),
            (&format!("nginx:latest@{}", digest.to_uppercase()), None),
            (&format!("nginx:latest@md5:{}", "0".repeat(32)), None),
            (&"0a".repeat(32), None),
            (&"a".repeat(300), None),
        ] {
            assert_eq!(tag(image).as_deref(), want, "{image:?}");
        }
    }
}
