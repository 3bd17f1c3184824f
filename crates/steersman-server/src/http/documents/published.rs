//! The documents that describe the served API: discovery and OpenAPI.
//!
//! They belong to one catalog, and to what the servers behind APIServices serve beside it. At the first request after a
//! change they are made again, with the documents of unchanged groups reused.

use crate::http::documents::discovery::Discovery;
use crate::http::documents::openapi::OpenApi;
use crate::shared::aggregation::discovered::Discovered;
use arc_swap::ArcSwap;
use bytes::Bytes;
use std::sync::{Arc, OnceLock};
use steersman_kinds::catalog::Catalog;

/// The documents of one catalog.
pub(crate) struct Documents {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) discovery: Discovery,
    pub(crate) openapi: Arc<OpenApi>,
    /// The kinds that other servers serve.
    pub(crate) discovered: Arc<Discovered>,
    openapi_index: OnceLock<Bytes>,
}

impl Documents {
    /// `GET /openapi/v3`: the documents of this server and of the others.
    pub(crate) fn openapi_index(&self) -> Bytes {
        self.openapi_index.get_or_init(|| self.openapi.index_beside(&self.discovered)).clone()
    }
}

/// Keeps the documents of the catalog that was requested last.
pub(crate) struct Published {
    latest: ArcSwap<Documents>,
}

impl Published {
    pub(crate) fn new(catalog: Arc<Catalog>) -> Published {
        let (discovery, openapi) = (Discovery::new(catalog.clone()), Arc::new(OpenApi::new(&catalog)));
        let (discovered, openapi_index) = (Arc::default(), OnceLock::new());
        Published {
            latest: ArcSwap::from_pointee(Documents { catalog, discovery, openapi, discovered, openapi_index }),
        }
    }

    /// The documents of a catalog, and of what other servers serve.
    pub(crate) fn of(&self, catalog: &Arc<Catalog>, discovered: &Arc<Discovered>) -> Arc<Documents> {
        let latest = self.latest.load_full();
        if Arc::ptr_eq(&latest.catalog, catalog) && Arc::ptr_eq(&latest.discovered, discovered) {
            return latest;
        }
        // Two requests at the same time may both make the documents; either result is kept.
        let openapi = match Arc::ptr_eq(&latest.catalog, catalog) {
            true => latest.openapi.clone(),
            false => Arc::new(latest.openapi.after(catalog)),
        };
        let discovery = latest.discovery.after(catalog.clone());
        let (catalog, discovered) = (catalog.clone(), discovered.clone());
        let discovery = discovery.beside(discovered.clone());
        let next = Arc::new(Documents { catalog, discovery, openapi, discovered, openapi_index: OnceLock::new() });
        self.latest.store(next.clone());
        next
    }
}
