//! The DER encodings that a certificate needs.

/// A value with its tag and length.
pub(super) fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match u8::try_from(content.len()) {
        Ok(length) if length < 0x80 => out.push(length),
        _ => {
            let bytes = content.len().to_be_bytes();
            let significant = &bytes[bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len() - 1)..];
            // At most eight bytes, so the count fits.
            out.push(0x80 | significant.len() as u8);
            out.extend_from_slice(significant);
        }
    }
    out.extend_from_slice(content);
    out
}

/// A sequence of values.
pub(super) fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    value(0x30, &parts.concat())
}

/// A positive integer from its bytes, the first of which is not zero.
pub(super) fn integer(bytes: &[u8]) -> Vec<u8> {
    let mut content = bytes.to_vec();
    // A leading bit that is set would be read as a sign.
    if content.first().is_some_and(|first| *first >= 0x80) {
        content.insert(0, 0);
    }
    value(0x02, &content)
}

/// A bit string whose length is a multiple of eight.
pub(super) fn bits(bytes: &[u8]) -> Vec<u8> {
    value(0x03, &[&[0], bytes].concat())
}

/// A bit string without its trailing zero bits.
pub(super) fn flags(byte: u8) -> Vec<u8> {
    // At most seven, because at least one bit is set.
    let unused = byte.trailing_zeros() as u8;
    value(0x03, &[unused, byte])
}

pub(super) fn octets(content: &[u8]) -> Vec<u8> {
    value(0x04, content)
}

/// A time to the second, in the form that certificates use for its year.
pub(super) fn time(time: jiff::Timestamp) -> Vec<u8> {
    let civil = time.to_zoned(jiff::tz::TimeZone::UTC).datetime();
    let rest = civil.strftime("%m%d%H%M%SZ").to_string();
    match civil.year() {
        year @ 1950..2050 => value(0x17, format!("{:02}{rest}", year % 100).as_bytes()),
        year => value(0x18, format!("{year:04}{rest}").as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_beyond_a_byte_are_counted() {
        assert_eq!(value(4, &[1])[..2], [4, 1]);
        assert_eq!(value(4, &[0; 200])[..3], [4, 0x81, 200]);
        assert_eq!(value(4, &[0; 300])[..4], [4, 0x82, 1, 44]);
    }

    #[test]
    fn times_change_their_form_in_2050() {
        let text = |text: &str| String::from_utf8(time(text.parse().unwrap())[2..].to_vec()).unwrap();
        assert_eq!(text("2026-01-02T03:04:05Z"), "260102030405Z");
        assert_eq!(text("2050-01-02T03:04:05Z"), "20500102030405Z");
    }

    #[test]
    fn numbers_have_no_sign_and_flags_no_slack() {
        assert_eq!(integer(&[0x80]), [2, 2, 0, 0x80]);
        assert_eq!(flags(0b1010_0000), [3, 2, 5, 0b1010_0000]);
    }
}
