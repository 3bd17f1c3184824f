//! A stream without its connection, for fuzz targets: requests as bytes, views by numbers, responses as bytes.

use crate::kind::Kind;
use crate::report::Variant;
use crate::resource::Resource;
use crate::server::reader;
use crate::session::{Now, Session};
use crate::view::{Set, View};
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// The names of a type that views may have.
const NAMES: u8 = 4;

/// One stream of a proxy.
#[derive(Debug)]
pub struct Stream {
    variant: Variant,
    session: Session,
    now: Now,
}

/// A response: its type, its nonce, and the gRPC message.
#[derive(Clone, Debug)]
pub struct Sent {
    pub kind: Kind,
    pub nonce: String,
    pub message: Bytes,
}

impl Stream {
    #[must_use]
    pub fn new(variant: Variant) -> Stream {
        let now = Now { instant: Instant::now().into_std(), time: SystemTime::UNIX_EPOCH };
        Stream { variant, session: Session::new(variant), now }
    }

    /// Takes in a request as it comes, with at most `names_max` names. False if the stream ends with it.
    pub fn request(&mut self, message: &[u8], names_max: usize) -> bool {
        let message = Bytes::copy_from_slice(message);
        // The node of a first request is read apart from the rest.
        let _ = reader::decode_node(self.variant, message.clone());
        match reader::decode(self.variant, message) {
            Ok(Some(request)) => self.session.request(self.now, request, names_max).is_ok(),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// Sets the view with these resources: a bit for each cluster with endpoints, listener and table of routes, and the number of their version.
    pub fn wanted(&mut self, clusters: u8, listeners: u8, version: u8) {
        self.session.wanted(Arc::new(view(clusters, listeners, version)));
    }

    pub fn pass_time(&mut self, time: Duration) {
        self.now.instant += time;
    }

    /// The next response.
    #[must_use]
    pub fn respond(&mut self) -> Option<Sent> {
        let response = self.session.next(self.now)?;
        let message = response.encode().concat().into();
        Some(Sent { kind: response.kind, nonce: response.nonce, message })
    }

    /// The number of names that are kept for the proxy.
    #[must_use]
    pub fn n_names(&self) -> usize {
        self.session.resources().len()
    }
}

fn view(clusters: u8, listeners: u8, version: u8) -> View {
    let present = |bits: u8| (0..NAMES).filter(move |bit| bits & 1 << bit != 0);
    let content = Bytes::copy_from_slice(&[version]);
    let cluster = |bit: u8| Resource::from_bytes(Kind::Cluster, format!("c{bit}"), content.clone());
    let clusters_set: Set =
        present(clusters).map(|bit| Arc::new(cluster(bit).needing(Kind::Endpoints, [format!("c{bit}")]))).collect();
    let endpoints = |bit: u8| Resource::from_bytes(Kind::Endpoints, format!("c{bit}"), content.clone());
    let endpoints: Set = present(clusters).map(|bit| Arc::new(endpoints(bit))).collect();
    // A table leads to two clusters, of which the second may be missing.
    let route = |bit: u8| {
        let route = Resource::from_bytes(Kind::Route, format!("r{bit}"), content.clone());
        Arc::new(route.needing(Kind::Cluster, [format!("c{bit}"), format!("c{}", (bit + 1) % NAMES)]))
    };
    let listener = |bit: u8| {
        let listener = Resource::from_bytes(Kind::Listener, format!("l{bit}"), Bytes::from_static(b"l"));
        Arc::new(listener.needing(Kind::Route, [format!("r{bit}")]))
    };
    View::new()
        .with(Kind::Cluster, clusters_set)
        .with(Kind::Endpoints, endpoints)
        .with(Kind::Listener, present(listeners).map(listener).collect())
        .with(Kind::Route, present(listeners).map(route).collect())
}
