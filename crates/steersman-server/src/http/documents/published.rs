//! The documents that describe the served API: discovery and OpenAPI.
//!
//! They belong to one catalog. At the first request after a change of the catalog they are made again, with the
//! documents of unchanged groups reused.

use crate::http::documents::discovery::Discovery;
use crate::http::documents::openapi::OpenApi;
use arc_swap::ArcSwap;
use std::sync::Arc;
use steersman_kinds::catalog::Catalog;

/// The documents of one catalog.
pub(crate) struct Documents {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) discovery: Discovery,
    pub(crate) openapi: OpenApi,
}

/// Keeps the documents of the catalog that was requested last.
pub(crate) struct Published {
    latest: ArcSwap<Documents>,
}

impl Published {
    pub(crate) fn new(catalog: Arc<Catalog>) -> Published {
        let (discovery, openapi) = (Discovery::new(catalog.clone()), OpenApi::new(&catalog));
        Published { latest: ArcSwap::from_pointee(Documents { catalog, discovery, openapi }) }
    }

    /// The documents of a catalog.
    pub(crate) fn of(&self, catalog: &Arc<Catalog>) -> Arc<Documents> {
        let latest = self.latest.load_full();
        if Arc::ptr_eq(&latest.catalog, catalog) {
            return latest;
        }
        // Two requests at the same time may both make the documents; either result is kept.
        let (discovery, openapi) = (latest.discovery.after(catalog.clone()), latest.openapi.after(catalog));
        let next = Arc::new(Documents { catalog: catalog.clone(), discovery, openapi });
        self.latest.store(next.clone());
        next
    }
}
