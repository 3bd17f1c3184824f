//! Rewrites the links of HTML pages that a proxy passes on, so that those to the other side lead through the proxy again.
//!
//! The attributes, and the codings of bodies that are looked into, are those of apimachinery's `util/proxy/transport.go`. A
//! page is rewritten as it comes. If that takes more than [`KEPT_BYTES_MAX`] at some place, the rest is passed on as it is.

use crate::shared::request::body::{Body, Chunks, Error};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::{DeflateDecoder, DeflateEncoder, GzEncoder, MultiGzDecoder};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http_body::Body as _;
use lol_html::send::{Element, ElementContentHandlers, HtmlRewriter, Settings};
use lol_html::{MemorySettings, OutputSink};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The attributes that hold links, by element.
const LINKS: &[(&str, &[&str])] = &[
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// The bytes that may be kept of a page that is being rewritten: of a tag that has not ended, and of the elements that are open.
const KEPT_BYTES_MAX: usize = 1024 * 1024;
/// The decoded bytes after which other tasks get a turn.
const DECODED_AT_ONCE: usize = 256 * 1024;
/// The bytes of a body that are decoded in one piece: compressed ones may stand for a thousand times as many.
const PIECE_BYTES: usize = 16 * 1024;
const COMPRESSED_PIECE_BYTES: usize = 256;

/// Returns the link that the page has in place of this one.
pub(super) type Rewrite = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// The coding of a page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Coding {
    Identity,
    Gzip,
    Deflate,
}

/// A page whose links are rewritten while it is sent.
struct Page {
    body: Body,
    /// The received bytes that are to be decoded next.
    rest: Bytes,
    /// `None` after the end of the page.
    decoder: Option<Decoder>,
    /// The decoded bytes when other tasks had a turn last.
    n_decoded: u64,
    output: Output,
}

/// Decodes a page for the rewriter.
enum Decoder {
    Identity(Rewriter),
    Gzip(MultiGzDecoder<Rewriter>),
    Deflate(DeflateDecoder<Rewriter>),
}

/// Rewrites decoded bytes of a page.
struct Rewriter {
    /// `None` after a tag that is too long.
    html: Option<Box<HtmlRewriter<'static, Output>>>,
    output: Output,
    n_written: u64,
}

/// Takes the rewritten bytes, and encodes them.
#[derive(Clone)]
struct Output(Arc<Mutex<Encoder>>);

enum Encoder {
    Identity(Vec<u8>),
    Gzip(GzEncoder<Vec<u8>>),
    Deflate(DeflateEncoder<Vec<u8>>),
}

/// The answer's body with rewritten links, if it is a page whose coding is known. Its length is not known beforehand.
pub(super) fn rewritten(headers: &mut HeaderMap, body: Body, rewrite: Rewrite) -> Body {
    match coding(headers) {
        Some(coding) if !body.is_end_stream() => {
            headers.remove(CONTENT_LENGTH);
            Body::chunks(Page::new(body, coding, rewrite))
        }
        _ => body,
    }
}

/// The coding of a page; `None` if the answer is no page, or has another coding.
fn coding(headers: &HeaderMap) -> Option<Coding> {
    let text = |name| headers.get(name).map_or(Ok(""), |value| value.to_str()).ok();
    let media_type = text(CONTENT_TYPE)?.split(';').next().unwrap_or_default().trim();
    if media_type != "text/html" {
        return None;
    }
    match text(CONTENT_ENCODING)? {
        "" => Some(Coding::Identity),
        "gzip" => Some(Coding::Gzip),
        "deflate" => Some(Coding::Deflate),
        _ => None,
    }
}

impl Page {
    fn new(body: Body, coding: Coding, rewrite: Rewrite) -> Page {
        let encoder = match coding {
            Coding::Identity => Encoder::Identity(Vec::new()),
            Coding::Gzip => Encoder::Gzip(GzEncoder::new(Vec::new(), Compression::default())),
            Coding::Deflate => Encoder::Deflate(DeflateEncoder::new(Vec::new(), Compression::default())),
        };
        let output = Output(Arc::new(Mutex::new(encoder)));
        let rewriter = Rewriter::new(output.clone(), rewrite);
        let decoder = match coding {
            Coding::Identity => Decoder::Identity(rewriter),
            Coding::Gzip => Decoder::Gzip(MultiGzDecoder::new(rewriter)),
            Coding::Deflate => Decoder::Deflate(DeflateDecoder::new(rewriter)),
        };
        Page { body, rest: Bytes::new(), decoder: Some(decoder), n_decoded: 0, output }
    }
}

impl Chunks for Page {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        let broken = |error: io::Error| Error::Broken(format!("the page cannot be read: {error}"));
        loop {
            let Some(decoder) = &mut self.decoder else { return Poll::Ready(None) };
            let n_decoded = decoder.rewriter().n_written;
            if DECODED_AT_ONCE as u64 <= n_decoded - self.n_decoded {
                self.n_decoded = n_decoded;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let next = if self.rest.is_empty() {
                match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                    Some(Ok(frame)) => {
                        self.rest = frame.into_data().unwrap_or_default();
                        Ok(Vec::new())
                    }
                    Some(Err(error)) => {
                        self.decoder = None;
                        return Poll::Ready(Some(Err(error)));
                    }
                    None => {
                        let ended = self.decoder.take().map_or(Ok(()), Decoder::finish);
                        ended.and_then(|()| self.output.finish())
                    }
                }
            } else {
                let some = self.rest.split_to(self.rest.len().min(decoder.piece_bytes()));
                decoder.write_all(&some).map(|()| self.output.take())
            };
            match next {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => return Poll::Ready(Some(Ok(Bytes::from(bytes)))),
                Err(error) => {
                    self.decoder = None;
                    return Poll::Ready(Some(Err(broken(error))));
                }
            }
        }
    }
}

impl Decoder {
    fn rewriter(&self) -> &Rewriter {
        match self {
            Decoder::Identity(rewriter) => rewriter,
            Decoder::Gzip(decoder) => decoder.get_ref(),
            Decoder::Deflate(decoder) => decoder.get_ref(),
        }
    }

    fn piece_bytes(&self) -> usize {
        match self {
            Decoder::Identity(_) => PIECE_BYTES,
            Decoder::Gzip(_) | Decoder::Deflate(_) => COMPRESSED_PIECE_BYTES,
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Decoder::Identity(rewriter) => rewriter.write_all(bytes),
            Decoder::Gzip(decoder) => decoder.write_all(bytes),
            Decoder::Deflate(decoder) => decoder.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<()> {
        let rewriter = match self {
            Decoder::Identity(rewriter) => rewriter,
            Decoder::Gzip(decoder) => decoder.finish()?,
            Decoder::Deflate(decoder) => decoder.finish()?,
        };
        // Every byte of a page is passed on when the rewriter gives up.
        if let Some(html) = rewriter.html {
            drop(html.end());
        }
        Ok(())
    }
}

impl Rewriter {
    fn new(output: Output, rewrite: Rewrite) -> Rewriter {
        let memory = MemorySettings::new()
            .with_max_allowed_memory_usage(KEPT_BYTES_MAX)
            .with_graceful_bail_out_on_memory_limit_exceeded(true);
        let mut settings = Settings::new_send().with_memory_settings(memory).with_strict(false);
        for (element, attributes) in LINKS {
            let rewrite = rewrite.clone();
            let handler = move |element: &mut Element<'_, '_>| {
                for attribute in *attributes {
                    if let Some(link) = element.get_attribute(attribute) {
                        let other = rewrite(&link);
                        if other != link {
                            element.set_attribute(attribute, &other)?;
                        }
                    }
                }
                Ok(())
            };
            // The names of elements are selectors, all of them valid.
            if let Ok(selector) = element.parse() {
                let handlers = ElementContentHandlers::default().element(handler);
                settings = settings.append_element_content_handler((Cow::Owned(selector), handlers));
            }
        }
        Rewriter { html: Some(Box::new(HtmlRewriter::new(settings, output.clone()))), output, n_written: 0 }
    }
}

impl Write for Rewriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.n_written += bytes.len() as u64;
        match &mut self.html {
            Some(html) => {
                if html.write(bytes).is_err() {
                    // It has passed on these bytes as they are.
                    self.html = None;
                }
            }
            None => self.output.handle_chunk(bytes),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl OutputSink for Output {
    fn handle_chunk(&mut self, bytes: &[u8]) {
        let mut encoder = self.0.lock();
        // The bytes go to memory, which does not fail.
        let _ = match &mut *encoder {
            Encoder::Identity(into) => into.write_all(bytes),
            Encoder::Gzip(encoder) => encoder.write_all(bytes),
            Encoder::Deflate(encoder) => encoder.write_all(bytes),
        };
    }
}

impl Output {
    /// The encoded bytes that have not been taken yet.
    fn take(&self) -> Vec<u8> {
        let mut encoder = self.0.lock();
        std::mem::take(match &mut *encoder {
            Encoder::Identity(into) => into,
            Encoder::Gzip(encoder) => encoder.get_mut(),
            Encoder::Deflate(encoder) => encoder.get_mut(),
        })
    }

    /// The last encoded bytes.
    fn finish(&self) -> io::Result<Vec<u8>> {
        match &mut *self.0.lock() {
            Encoder::Identity(_) => {}
            Encoder::Gzip(encoder) => encoder.try_finish()?,
            Encoder::Deflate(encoder) => encoder.try_finish()?,
        }
        Ok(self.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder as GzReader;
    use http::HeaderValue;
    use http_body_util::BodyExt as _;
    use proptest::prelude::*;
    use std::io::Read as _;

    /// A body that arrives in parts of this size.
    struct Parts(Bytes, usize);

    impl Chunks for Parts {
        fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
            let n = self.0.len().min(self.1);
            Poll::Ready((n > 0).then(|| Ok(self.0.split_to(n))))
        }
    }

    fn collect(body: Body) -> Result<Vec<u8>, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(body.collect()).map(|whole| whole.to_bytes().to_vec())
    }

    fn headers(media_type: &str, coding: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_str(media_type).unwrap());
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("1"));
        if !coding.is_empty() {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_str(coding).unwrap());
        }
        headers
    }

    /// The page with a prefix before each link that is a path, received in parts of this size.
    fn pass(page: &[u8], part: usize, headers: &mut HeaderMap) -> Vec<u8> {
        let rewrite = |link: &str| if link.starts_with('/') { format!("/proxy{link}") } else { link.to_owned() };
        let body = Body::chunks(Parts(Bytes::copy_from_slice(page), part));
        let body = rewritten(headers, body, Arc::new(rewrite));
        collect(body).unwrap()
    }

    #[track_caller]
    fn check(page: &str, want: &str) {
        for part in [1, 2, 3, 7, 1000] {
            let passed = pass(page.as_bytes(), part, &mut headers("text/html; charset=utf-8", ""));
            assert_eq!(String::from_utf8_lossy(&passed), want, "in parts of {part}");
        }
    }

    #[test]
    fn links_to_the_other_side_lead_through_the_proxy() {
        check(r#"<a href="/x">x</a>"#, r#"<a href="/proxy/x">x</a>"#);
        check("<IMG SRC=/x usemap='/y' alt=/z>", r#"<IMG SRC="/proxy/x" usemap="/proxy/y" alt=/z>"#);
        check(r#"<video poster="/p"/><p cite="/c">"#, r#"<video poster="/proxy/p" /><p cite="/c">"#);
        // Neither what is no link, nor text that looks like one.
        let other = r#"<a href="x">é</a><!-- <a href="/x"> --><script>'<a href="/x">'</script> <a href="/x"#;
        check(other, other);
    }

    #[test]
    fn only_pages_are_rewritten() {
        let page = br#"<a href="/x">"#;
        for (media_type, coding, is_rewritten) in [
            ("text/html", "", true),
            ("text/html;charset=x", "", true),
            ("text/plain", "", false),
            ("application/json", "", false),
            ("text/html", "br", false),
        ] {
            let mut headers = headers(media_type, coding);
            let passed = pass(page, 1000, &mut headers);
            assert_eq!(passed != page, is_rewritten, "{media_type} {coding}");
            assert_eq!(headers.contains_key(CONTENT_LENGTH), !is_rewritten, "{media_type} {coding}");
        }
    }

    #[test]
    fn compressed_pages_stay_compressed() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&br#"<a href="/x"></a>"#.repeat(5000)).unwrap();
        let gzip = gzip.finish().unwrap();
        let passed = pass(&gzip, 100, &mut headers("text/html", "gzip"));
        let mut page = String::new();
        GzReader::new(&*passed).read_to_string(&mut page).unwrap();
        assert!(page == r#"<a href="/proxy/x"></a>"#.repeat(5000));
        // A page may be compressed in several members.
        let twice = pass(&[&gzip[..], &gzip[..]].concat(), 100, &mut headers("text/html", "gzip"));
        let mut page = String::new();
        GzReader::new(&*twice).read_to_string(&mut page).unwrap();
        assert!(page == r#"<a href="/proxy/x"></a>"#.repeat(10_000));
        // A page that breaks off is not taken for a whole one.
        let body = Body::chunks(Parts(Bytes::copy_from_slice(&gzip[..gzip.len() / 2]), 100));
        let body = rewritten(&mut headers("text/html", "gzip"), body, Arc::new(|link| link.to_owned()));
        assert!(collect(body).is_err());
    }

    #[test]
    fn a_tag_that_does_not_end_costs_a_bounded_amount_and_is_passed_on() {
        let mut page = br#"<a href="/x"><a title=""#.to_vec();
        page.resize(4 * KEPT_BYTES_MAX, b'y');
        page.extend_from_slice(br#""><a href="/x">"#);
        let passed = pass(&page, 64 * 1024, &mut headers("text/html", ""));
        assert!(passed.starts_with(br#"<a href="/proxy/x">"#) && passed.ends_with(br#"y"><a href="/x">"#));
        assert_eq!(passed.len(), page.len() + "/proxy".len());
    }

    proptest! {
        #[test]
        fn a_page_without_links_is_passed_on_as_it_is(page in "[<>!a-z\"'= -]{0,200}", part in 1_usize..50) {
            let passed = pass(page.as_bytes(), part, &mut headers("text/html", ""));
            prop_assert_eq!(String::from_utf8_lossy(&passed), page);
        }
    }
}
