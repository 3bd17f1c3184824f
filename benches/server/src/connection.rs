//! One connection: reads requests one after the other and writes the recorded answers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use crate::recording::{Recording, State, frame};
use crate::session::{Next, Progress, Session};

/// The most bytes of a request, which is a line and some headers only.
const HEAD_BYTES_MAX: u64 = 16 * 1024;
const GONE: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}"#;

/// The parts of a request on which answers depend.
#[derive(Debug, Default, Eq, PartialEq)]
struct Query {
    /// The number of the item at which a page begins, if it is not the first page.
    continues: Option<usize>,
    has_initial_events: bool,
    is_watch: bool,
    limit: usize,
    version: Option<usize>,
}

/// Answers until the client disconnects.
///
/// # Errors
///
/// If it disconnects in the middle of a request, or does not speak HTTP.
pub(crate) fn serve(stream: TcpStream, recording: &Recording, session: &Session) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut out = stream;
    while let Some(target) = read_target(&mut reader)? {
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        match path {
            "/control/reset" => session.reset(),
            "/control/expire" => session.expire(),
            "/control/updates" => session.stream_updates(),
            "/control/watching" => session.wait_for_watch(),
            "/api/v1/pods" | "/apis/example.com/v1/databases" => {
                answer(&mut out, &Query::parse(query), recording, session)?;
                continue;
            }
            _ => {
                write_whole(&mut out, "404 Not Found", &[b"{}"])?;
                continue;
            }
        }
        write_whole(&mut out, "200 OK", &[recording.facts.as_bytes()])?;
    }
    Ok(())
}

/// Reads one request and returns its target; `None` when the client has disconnected.
fn read_target(reader: &mut BufReader<TcpStream>) -> io::Result<Option<String>> {
    let mut head = reader.by_ref().take(HEAD_BYTES_MAX);
    let mut line = String::new();
    if head.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
    while line.trim_end() != "" {
        line.clear();
        if head.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(Some(target))
}

fn answer(out: &mut TcpStream, query: &Query, recording: &Recording, session: &Session) -> io::Result<()> {
    let progress = session.progress();
    let state = &recording.states[progress.n_expired.min(recording.states.len() - 1)];
    if !query.is_watch {
        return list(out, query, recording, state);
    }
    if !query.has_initial_events && query.version.is_some_and(|version| version < state.version) {
        return write_whole(out, "410 Gone", &[GONE.as_bytes()]);
    }
    out.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    if query.has_initial_events {
        out.write_all(&state.initial_events)?;
    }
    follow(out, recording, session, progress)
}

fn list(out: &mut TcpStream, query: &Query, recording: &Recording, state: &State) -> io::Result<()> {
    let n_objects = recording.workload.n_objects();
    let start = query.continues.unwrap_or(0).min(n_objects);
    // A real server answers a list at version 0 from its cache, without pages.
    let end =
        if query.limit == 0 || query.version == Some(0) { n_objects } else { (start + query.limit).min(n_objects) };
    let page = match end < n_objects {
        true => format!(r#","continue":"{end}","remainingItemCount":{}"#, n_objects - end),
        false => String::new(),
    };
    let (kind, api_version) = (recording.workload.list_kind(), recording.workload.api_version());
    let version = state.version;
    let head = format!(
        r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{{"resourceVersion":"{version}"{page}}},"items":["#
    );
    write_whole(out, "200 OK", &[head.as_bytes(), state.items(start..end), b"]}\n"])
}

/// Carries out the steps of an open watch, until it ends.
fn follow(out: &mut TcpStream, recording: &Recording, session: &Session, seen: Progress) -> io::Result<()> {
    session.start_watching(seen);
    let mut has_sent_updates = false;
    loop {
        match session.next(seen, has_sent_updates) {
            Next::End => return Err(io::ErrorKind::ConnectionAborted.into()),
            Next::Expire => {
                let mut end = Vec::new();
                frame(format!("{{\"type\":\"ERROR\",\"object\":{GONE}}}\n").as_bytes(), &mut end);
                frame(b"", &mut end);
                return out.write_all(&end);
            }
            Next::Updates => {
                out.write_all(&recording.updates)?;
                has_sent_updates = true;
            }
        }
    }
}

fn write_whole(out: &mut TcpStream, status: &str, parts: &[&[u8]]) -> io::Result<()> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
    out.write_all(head.as_bytes())?;
    parts.iter().try_for_each(|part| out.write_all(part))
}

// === impl Query ===

impl Query {
    fn parse(text: &str) -> Query {
        let mut query = Query::default();
        for (name, value) in text.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "continue" => query.continues = value.parse().ok(),
                "limit" => query.limit = value.parse().unwrap_or(0),
                "resourceVersion" => query.version = value.parse().ok(),
                "sendInitialEvents" => query.has_initial_events = value == "true",
                "watch" => query.is_watch = value == "true" || value == "1",
                _ => {}
            }
        }
        query
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_taken_apart() {
        let query = Query::parse("watch=true&sendInitialEvents=true&resourceVersion=12&timeoutSeconds=290&limit=500");
        let expected =
            Query { continues: None, has_initial_events: true, is_watch: true, limit: 500, version: Some(12) };
        assert_eq!(query, expected);
        assert_eq!(Query::parse(""), Query::default());
    }
}
