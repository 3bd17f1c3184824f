//! The discovery service of xDS: requests of a proxy as bytes, in between changes of what it should have. Nothing panics, a response waits for
//! the answer to the one before it, names stay bounded, and a proxy that acknowledges everything comes to an end.

use crate::input::Draw;
use std::time::Duration;
use steersman_xds::fuzzing::{Sent, Stream};
use steersman_xds::{Kind, Variant};

const NAMES_MAX: usize = 40;
/// The responses until a proxy has everything: far more than a view of a few names needs.
const RESPONSES_MAX: usize = 200;
/// The bytes before each message of gRPC.
const HEAD_BYTES: usize = 5;
const NAMES: [&str; 10] = ["", "*", "c0", "c1", "c2", "r0", "r1", "l0", "l1", "else"];
const VERSIONS: [&str; 4] = ["", "1", "0123456789abcdef0123456789abcdef", "ä"];

/// A stream with the responses that its proxy has not answered.
struct Proxy {
    variant: Variant,
    stream: Stream,
    unanswered: Vec<Sent>,
}

pub fn run(data: &[u8]) {
    let Some(mut draw) = Draw::of(data) else {
        // The bytes of one request, as they are.
        for variant in [Variant::Delta, Variant::StateOfTheWorld] {
            let mut stream = Stream::new(variant);
            stream.wanted(0b11, 0b1, 1);
            if stream.request(data, NAMES_MAX) {
                assert!((0..RESPONSES_MAX).any(|_| stream.respond().is_none()), "it ends");
            }
        }
        return;
    };
    let variant = if draw.once_in(2) { Variant::StateOfTheWorld } else { Variant::Delta };
    let mut proxy = Proxy { variant, stream: Stream::new(variant), unanswered: Vec::new() };
    while !draw.is_done() {
        let goes_on = match draw.below(8) {
            0 | 1 => {
                proxy.stream.wanted(draw.byte(), draw.byte(), draw.byte() % 4);
                true
            }
            2 => {
                proxy.stream.pass_time(Duration::from_millis(u64::from(draw.byte()) * 50));
                true
            }
            3 => proxy.answer(draw.once_in(4)),
            4 => {
                let length = draw.below(64);
                let bytes: Vec<u8> = (0..length).map(|_| draw.byte()).collect();
                proxy.stream.request(&bytes, NAMES_MAX)
            }
            _ => {
                let request = proxy.draw(&mut draw);
                proxy.stream.request(&request, NAMES_MAX)
            }
        };
        if !goes_on {
            return;
        }
        proxy.take();
        // Besides the names that it gives, a proxy has those of the views.
        assert!(proxy.stream.n_names() <= 5 * (NAMES_MAX + 8), "{} names", proxy.stream.n_names());
    }
    proxy.stream.pass_time(Duration::from_secs(60));
    for _ in 0..RESPONSES_MAX {
        proxy.take();
        if proxy.unanswered.is_empty() {
            return;
        }
        assert!(proxy.answer(false), "an acknowledgement ends no stream");
    }
    panic!("the proxy acknowledges everything and is sent more and more: {:?}", proxy.unanswered);
}

impl Proxy {
    /// Takes what there is to send.
    fn take(&mut self) {
        while let Some(sent) = self.stream.respond() {
            let head = &sent.message[..HEAD_BYTES];
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            assert_eq!((head[0], length), (0, sent.message.len() - HEAD_BYTES), "the frame of {sent:?}");
            let is_second = self.unanswered.iter().any(|other| other.kind == sent.kind);
            assert!(!is_second, "a second response of a type without an answer: {sent:?}");
            self.unanswered.push(sent);
        }
    }

    /// Answers the oldest response. True if the stream goes on.
    fn answer(&mut self, rejects: bool) -> bool {
        if self.unanswered.is_empty() {
            return true;
        }
        let sent = self.unanswered.remove(0);
        let request = self.request(sent.kind, &sent.nonce, &[], &[], &[], rejects.then_some("c0 is bad"));
        self.stream.request(&request, NAMES_MAX)
    }

    /// A request about anything. One with the nonce of a response answers it.
    fn draw(&mut self, draw: &mut Draw<'_>) -> Vec<u8> {
        let kind = Kind::ALL[draw.below(Kind::ALL.len())];
        let names = |draw: &mut Draw<'_>| (0..draw.below(5)).map(|_| draw.choose(&NAMES)).collect::<Vec<_>>();
        let (subscribe, unsubscribe) = (names(draw), names(draw));
        let has: Vec<_> = (0..draw.below(3)).map(|_| (draw.choose(&NAMES), draw.choose(&VERSIONS))).collect();
        let answered = self.unanswered.iter().position(|sent| sent.kind == kind).filter(|_| draw.once_in(2));
        let nonce = answered.map_or_else(String::new, |place| self.unanswered.remove(place).nonce);
        let error = draw.once_in(4).then_some("c1: no");
        self.request(kind, &nonce, &subscribe, &unsubscribe, &has, error)
    }

    fn request(
        &self,
        kind: Kind,
        nonce: &str,
        subscribe: &[&str],
        unsubscribe: &[&str],
        has: &[(&str, &str)],
        error: Option<&str>,
    ) -> Vec<u8> {
        let mut out = Vec::new();
        let error = error.map(|error| field(2, error.as_bytes()));
        match self.variant {
            Variant::Delta => {
                out.extend(field(2, kind.type_url().as_bytes()));
                out.extend(subscribe.iter().flat_map(|name| field(3, name.as_bytes())));
                out.extend(unsubscribe.iter().flat_map(|name| field(4, name.as_bytes())));
                for (name, version) in has {
                    out.extend(field(5, &[field(1, name.as_bytes()), field(2, version.as_bytes())].concat()));
                }
                out.extend(field(6, nonce.as_bytes()));
                out.extend(error.into_iter().flat_map(|error| field(7, &error)));
            }
            Variant::StateOfTheWorld => {
                out.extend(has.first().into_iter().flat_map(|(_, version)| field(1, version.as_bytes())));
                out.extend(subscribe.iter().flat_map(|name| field(3, name.as_bytes())));
                out.extend(field(4, kind.type_url().as_bytes()));
                out.extend(field(5, nonce.as_bytes()));
                out.extend(error.into_iter().flat_map(|error| field(6, &error)));
            }
        }
        out
    }
}

/// A field with a content of less than 16,384 bytes.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut out = vec![number << 3 | 2];
    if length >= 128 {
        out.push((length & 127) as u8 | 128);
        out.push((length >> 7) as u8);
    } else {
        out.push(length as u8);
    }
    out.extend_from_slice(content);
    out
}
