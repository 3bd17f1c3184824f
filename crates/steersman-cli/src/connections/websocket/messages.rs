//! The messages that the chunks of a body become: the lines of a watch, or the chunks of a log.

use crate::connections::websocket::lines::Lines;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use std::collections::VecDeque;
use tokio_tungstenite::tungstenite::protocol::frame::coding::Data;

/// The contents of a WebSocket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Content {
    /// A text message for each line.
    Watch,
    /// A message for each chunk, after an empty one.
    Log(Coding),
}

/// The form of the messages of a log, which the client chooses as the protocol of the WebSocket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Coding {
    /// Binary messages: `binary.k8s.io`, or no protocol.
    Binary,
    /// Text messages: `base64.binary.k8s.io`.
    Base64,
}

/// Messages whose bytes have arrived and are not sent yet.
#[derive(Debug)]
pub(super) enum Messages {
    Lines(Lines),
    Chunks { coding: Coding, waiting: VecDeque<Bytes> },
}

/// A message of one frame.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: Data,
    pub(super) pieces: Vec<Bytes>,
}

impl Messages {
    pub(super) fn new(content: Content) -> Messages {
        match content {
            Content::Watch => Messages::Lines(Lines::default()),
            Content::Log(coding) => Messages::Chunks { coding, waiting: VecDeque::from([Bytes::new()]) },
        }
    }

    pub(super) fn push(&mut self, chunk: Bytes) {
        match self {
            Messages::Lines(lines) => lines.push(chunk),
            Messages::Chunks { waiting, .. } => waiting.push_back(chunk),
        }
    }

    /// The next complete message.
    pub(super) fn next(&mut self) -> Option<Message> {
        Some(match self {
            Messages::Lines(lines) => Message { kind: Data::Text, pieces: lines.next()? },
            Messages::Chunks { coding, waiting } => {
                let chunk = waiting.pop_front()?;
                match coding {
                    Coding::Binary => Message { kind: Data::Binary, pieces: vec![chunk] },
                    Coding::Base64 => Message { kind: Data::Text, pieces: vec![Bytes::from(STANDARD.encode(chunk))] },
                }
            }
        })
    }
}

impl Message {
    pub(super) fn bytes(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }
}
