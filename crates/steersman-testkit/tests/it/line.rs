//! A connection to the control plane that can be cut for one replica alone.

use http::{Request, Response};
use parking_lot::Mutex;
use std::sync::Arc;
use std::task::{Context, Poll};
use steersman_testkit::{ApiService, Body, Broken, ControlPlane, User};
use tower::Service;

#[derive(Clone)]
pub(crate) struct Line {
    service: ApiService,
    is_cut: Arc<Mutex<bool>>,
}

impl Line {
    pub(crate) fn new(plane: &ControlPlane) -> Self {
        Self { service: plane.service_as(User::master("operator")), is_cut: Arc::default() }
    }

    /// From now on, no request arrives.
    pub(crate) fn cut(&self) {
        *self.is_cut.lock() = true;
    }

    pub(crate) fn mend(&self) {
        *self.is_cut.lock() = false;
    }
}

impl Service<Request<kube::client::Body>> for Line {
    type Response = Response<Body>;
    type Error = Broken;
    type Future = <ApiService as Service<Request<kube::client::Body>>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        if *self.is_cut.lock() {
            return Box::pin(async { Err(Broken::Unsent) });
        }
        self.service.call(request)
    }
}
