//! A relay in front of a server on loopback: counts requests, and makes the server unavailable.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The end of a request line; it occurs nowhere else in a request, because targets are escaped.
const REQUEST_LINE_END: &[u8] = b" HTTP/1.1\r\n";

pub(crate) struct Proxy {
    pub(crate) url: String,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    n_requests: AtomicU64,
    is_away: AtomicBool,
    /// Both ends of the connections, so that they can be broken.
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// Starts a relay in front of the server with this URL. Its threads end with the process.
    pub(crate) fn start(target: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let target = target.split("://").nth(1).unwrap().trim_end_matches('/').to_owned();
        let state = Arc::<State>::default();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shared.is_away.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(&target) else { continue };
                let ends = [&client, &server].map(|end| end.try_clone().unwrap());
                shared.open.lock().unwrap().extend(ends);
                let (to_server, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let counting = Arc::clone(&shared);
                std::thread::spawn(move || relay(client, to_server, Some(&counting.n_requests)));
                std::thread::spawn(move || relay(server, to_client, None));
            }
        });
        Proxy { url, state }
    }

    /// Breaks every connection and closes new ones, or lets them through again.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.state.is_away.store(is_away, Ordering::SeqCst);
        for end in self.state.open.lock().unwrap().drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn n_requests(&self) -> u64 {
        self.state.n_requests.load(Ordering::SeqCst)
    }
}

/// Copies until either side closes.
fn relay(mut from: TcpStream, mut to: TcpStream, counter: Option<&AtomicU64>) {
    let (mut buffer, mut tail) = ([0_u8; 16 * 1024], Vec::new());
    while let Ok(length) = from.read(&mut buffer) {
        if length == 0 || to.write_all(&buffer[..length]).is_err() {
            break;
        }
        if let Some(counter) = counter {
            tail.extend_from_slice(&buffer[..length]);
            let n_lines = tail.windows(REQUEST_LINE_END.len()).filter(|window| *window == REQUEST_LINE_END).count();
            counter.fetch_add(n_lines as u64, Ordering::SeqCst);
            // An occurrence that the buffer splits is found with the next read.
            tail.drain(..tail.len().saturating_sub(REQUEST_LINE_END.len() - 1));
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
