//! An HTTP/2 request of raw frames, so that it can have headers that no client library would send.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};

use crate::security::refusals::table::Request;
use crate::security::refusals::wire::{Credential, Outcome, Server, read_more};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_BYTES_MAX: usize = 16 * 1024;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Sends it as the first stream of a connection, without a body.
pub(crate) fn send(server: &Server, who: &Credential, request: &Request) -> Outcome {
    let Request::Http2 { headers } = request else { unreachable!("the caller sends HTTP/1 itself") };
    let mut stream = match server.connect(who, b"h2") {
        Ok(stream) => stream,
        Err(error) => return Outcome::NoConnection(error),
    };
    let mut block = Vec::new();
    for (name, value) in headers {
        literal(&mut block, name, value);
    }
    if let Credential::Token(token) = who {
        literal(&mut block, b"authorization", format!("Bearer {token}").as_bytes());
    }
    let mut sent = PREFACE.to_vec();
    frame(&mut sent, SETTINGS, 0, 0, b"");
    let mut parts = block.chunks(FRAME_BYTES_MAX).peekable();
    let mut kind = HEADERS;
    while let Some(part) = parts.next() {
        let end = if parts.peek().is_none() { END_HEADERS } else { 0 };
        let flags = if kind == HEADERS { end | END_STREAM } else { end };
        frame(&mut sent, kind, flags, 1, part);
        kind = CONTINUATION;
    }
    let written = stream.write_all(&sent).and_then(|()| stream.flush());
    let (mut unread, mut status, mut body) = (Vec::new(), 0, Vec::new());
    loop {
        while unread.len() < 9 || unread.len() < 9 + length(&unread) {
            match read_more(&mut stream, &mut unread) {
                Ok(true) => {}
                Ok(false) => return Outcome::Closed(format!("{written:?}")),
                Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("no answer to {request:?}"),
                Err(error) => return Outcome::Closed(error.to_string()),
            }
        }
        let frame: Vec<u8> = unread.drain(..9 + length(&unread)).collect();
        let (kind, flags, payload) = (frame[3], frame[4], &frame[9..]);
        match kind {
            HEADERS if status == 0 => status = status_of(payload),
            DATA => body.extend_from_slice(payload),
            RST_STREAM => return Outcome::Closed("the stream was reset".to_owned()),
            GOAWAY => return Outcome::Closed("the server said goodbye".to_owned()),
            _ => {}
        }
        if matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0 {
            return Outcome::Answer { status, headers: BTreeMap::new(), body };
        }
    }
}

fn length(frame: &[u8]) -> usize {
    usize::from(frame[0]) << 16 | usize::from(frame[1]) << 8 | usize::from(frame[2])
}

fn frame(into: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    into.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_be_bytes()[1..]);
    into.extend_from_slice(&[kind, flags]);
    into.extend_from_slice(&stream.to_be_bytes());
    into.extend_from_slice(payload);
}

/// A header that is neither indexed nor compressed (RFC 7541, 6.2.2).
fn literal(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0);
    for text in [name, value] {
        let mut rest = text.len();
        if rest < 127 {
            block.push(u8::try_from(rest).unwrap());
        } else {
            block.push(127);
            rest -= 127;
            while rest >= 128 {
                block.push(u8::try_from(rest % 128).unwrap() | 128);
                rest /= 128;
            }
            block.push(u8::try_from(rest).unwrap());
        }
        block.extend_from_slice(text);
    }
}

/// The status, which is the first header of an answer: from the static table, or three digits in Huffman code.
fn status_of(block: &[u8]) -> u16 {
    const INDEXED: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
    let first = block[0];
    if let 0x88..=0x8e = first {
        return INDEXED[usize::from(first - 0x88)];
    }
    let text = &block[2..2 + usize::from(block[1] & 0x7f)];
    if block[1] & 0x80 == 0 {
        return std::str::from_utf8(text).unwrap().parse().unwrap();
    }
    let bits: Vec<u16> = text.iter().flat_map(|byte| (0..8).rev().map(move |bit| u16::from(byte >> bit & 1))).collect();
    let (mut at, mut status) = (0, 0);
    for _ in 0..3 {
        let take = |n: usize| bits[at..at + n].iter().fold(0, |number, bit| number << 1 | bit);
        // The digits 0 to 2 have the five-bit codes 0 to 2; 3 to 9 have the six-bit codes 25 to 31.
        let (n_bits, digit) = if take(5) < 3 { (5, take(5)) } else { (6, take(6) - 0b01_1001 + 3) };
        status = status * 10 + digit;
        at += n_bits;
    }
    status
}
