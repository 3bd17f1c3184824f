//! The documents that say what is served: discovery and OpenAPI.
//!
//! They follow the catalog: when somebody asks for one and the catalog is another than it was, the next are made of the last,
//! taking over what has not changed.

use crate::catalog::Catalog;
use crate::discovery::Discovery;
use crate::openapi::OpenApi;
use arc_swap::ArcSwap;
use std::sync::Arc;

/// What is served, in the forms in which it is asked for.
pub(crate) struct Documents {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) discovery: Discovery,
    pub(crate) openapi: OpenApi,
}

/// The documents of the catalog that was asked for last.
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
        // Two who ask at once make the same twice, and either stays.
        let (discovery, openapi) = (latest.discovery.after(catalog.clone()), latest.openapi.after(catalog));
        let next = Arc::new(Documents { catalog: catalog.clone(), discovery, openapi });
        self.latest.store(next.clone());
        next
    }
}
