//! Unique identifiers: the uids of objects, the ids of requests.

/// A random UUID. The thread's own generator, which the operating system seeds, makes its bits, because the system's
/// generator would cost a system call for each.
pub(crate) fn random() -> String {
    uuid::Builder::from_random_bytes(rand::random()).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_a_random_uuid_and_no_other_is_the_same() {
        let uid = uuid::Uuid::parse_str(&random()).unwrap();
        assert_eq!(uid.get_version(), Some(uuid::Version::Random));
        assert_ne!(random(), random());
    }
}
