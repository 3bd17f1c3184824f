//! Serves an artificial Kubernetes resource to the measured programs, from bytes prepared before the clock starts.
//!
//! One process, one workload, HTTP/1.1 on loopback: LIST in pages and whole, WATCH with and without the initial state.
//! A thread per connection writes slices of a few large buffers, so that this end costs little and the same for every
//! program. The next step is requested through `/control/`, see `session`. It prints its address when it is ready.

mod connection;
mod objects;
mod recording;
mod session;

use std::net::TcpListener;
use std::sync::Arc;

use clap::Parser;

use crate::objects::Workload;
use crate::recording::Recording;
use crate::session::Session;

/// Serves pre-made objects and events.
#[derive(Parser)]
struct Options {
    /// The objects to serve
    #[arg(long)]
    workload: Workload,
}

fn main() -> std::io::Result<()> {
    let options = Options::parse();
    let recording = Arc::new(Recording::make(options.workload));
    let session = Arc::new(Session::default());
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    for stream in listener.incoming() {
        let (stream, recording, session) = (stream?, Arc::clone(&recording), Arc::clone(&session));
        std::thread::spawn(move || {
            // Every measurement ends with a client that disconnects in the middle of an answer.
            drop(connection::serve(stream, &recording, &session));
        });
    }
    Ok(())
}
