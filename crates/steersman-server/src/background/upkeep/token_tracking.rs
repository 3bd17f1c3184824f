//! The ConfigMap with the day since which this cluster tracks the use of token Secrets. Follows kubernetes'
//! `pkg/controlplane/controller/legacytokentracking`.
//!
//! kube-controller-manager removes token Secrets that have long been unused, but none before tracking has lasted that
//! long.

use crate::background::bootstrap::{assign, create};
use crate::shared::conversion;
use crate::shared::status::Failure;
use crate::state::State;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::json;
use steersman_machinery::value::{set_at, str_at};
use steersman_machinery::{GroupResource, ObjectKey, Value};

const NAME: &str = "kube-apiserver-legacy-service-account-token-tracking";
const SINCE: [&str; 2] = ["data", "since"];

/// Creates the ConfigMap if it is missing, and restarts the tracking if it has no valid day.
pub(super) async fn pass(state: &State) -> Result<(), Failure> {
    let config_maps = GroupResource::new("", "configmaps");
    let key = ObjectKey::namespaced("kube-system", NAME);
    let today = state.now().to_zoned(TimeZone::UTC).date().to_string();
    let Some(stored) = state.get_own(&config_maps, &key).await? else {
        let config_map = json!({
            "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": NAME, "namespace": "kube-system"},
            "data": {"since": today},
        });
        return create(state, &config_maps, &key, config_map).await;
    };
    if names_a_day(&conversion::parse(&stored)?) {
        return Ok(());
    }
    let assign_today = |config_map: &mut Value| {
        set_at(config_map, &SINCE, Value::from(today.as_str()));
    };
    assign(state, &config_maps, &key, &assign_today).await
}

fn names_a_day(config_map: &Value) -> bool {
    str_at(config_map, &SINCE).is_some_and(|text| text.parse::<Date>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::authn;
    use crate::access::authz::Authorization;
    use std::sync::Arc;
    use steersman_storage::{Memory, Options, Store};

    #[tokio::test]
    async fn the_day_since_which_tokens_are_tracked_is_kept_and_made_anew_if_it_is_none() {
        let store = Store::open(Arc::new(Memory::new()), Options::default()).await.unwrap();
        let now = || "2026-03-04T23:59:59Z".parse().unwrap();
        let (authentication, authorization) = (authn::Options::default(), Authorization::default());
        let (admission, catalog) =
            (crate::write::admission::Plugins::default().asked(), crate::background::definitions::built_in());
        let state = State::new(store, authentication, authorization, admission, catalog, now);
        let config_maps = GroupResource::new("", "configmaps");
        let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "kube-system"}});
        let namespaces = GroupResource::new("", "namespaces");
        create(&state, &namespaces, &ObjectKey::cluster("kube-system"), namespace).await.unwrap();
        let key = ObjectKey::namespaced("kube-system", NAME);
        let since = async |set: Option<&str>| {
            if let Some(set) = set {
                let change = |config_map: &mut Value| {
                    set_at(config_map, &SINCE, Value::from(set));
                };
                assign(&state, &config_maps, &key, &change).await.unwrap();
            }
            pass(&state).await.unwrap();
            let stored = state.get(&config_maps, &key).await.unwrap().unwrap();
            str_at(&conversion::parse(&stored).unwrap(), &SINCE).unwrap().to_owned()
        };
        assert_eq!(since(None).await, "2026-03-04");
        assert_eq!(since(Some("2025-01-01")).await, "2025-01-01");
        assert_eq!(since(Some("yesterday")).await, "2026-03-04");
    }
}
