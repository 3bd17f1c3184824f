//! Maintains the priority levels and flow schemas of every server. `crate::http::flowcontrol` uses them.
//!
//! Follows upstream's `registry/flowcontrol/ensurer`: missing objects are made again; the spec of a mandatory object is
//! always restored, that of another one unless its annotation `apf.kubernetes.io/autoupdate-spec` is `false`.

use crate::background::upkeep::{create, edit};
use crate::shared::conversion;
use crate::shared::status::Failure;
use crate::state::State;
use futures::future;
use serde_json::json;
use steersman_kinds::builtin::cluster::flow::GROUP;
use steersman_kinds::builtin::cluster::flow::bootstrap::{self, AUTO_UPDATE, Bootstrap, EXEMPT};
use steersman_kinds::catalog::{Catalog, Served};
use steersman_machinery::value::{at, set_at, str_at};
use steersman_machinery::{GroupResource, ObjectKey, Value};

const LEVELS: &str = "prioritylevelconfigurations";
const SCHEMAS: &str = "flowschemas";
/// The field manager of the objects.
const PRODUCER: &str = "api-priority-and-fairness-config-producer-v1";

/// The resources that a pass depends on.
pub(super) fn resources() -> [GroupResource; 2] {
    [LEVELS, SCHEMAS].map(|plural| GroupResource::new(GROUP, plural))
}

/// Creates missing objects and restores changed specs. Concurrently, so that they share commits of the store.
///
/// # Errors
/// When the store cannot be read or written.
pub(super) async fn pass(state: &State) -> Result<(), Failure> {
    let catalog = state.catalog();
    let (levels, schemas) = (bootstrap::levels(), bootstrap::schemas());
    let levels = levels.iter().map(|one| keep(state, &catalog, LEVELS, one));
    let schemas = schemas.iter().map(|one| keep(state, &catalog, SCHEMAS, one));
    future::try_join_all(levels.chain(schemas)).await.map(|_| ())
}

async fn keep(state: &State, catalog: &Catalog, plural: &str, wanted: &Bootstrap) -> Result<(), Failure> {
    let Some(served) = catalog.find(GROUP, "v1", plural) else { return Ok(()) };
    let key = ObjectKey::cluster(wanted.name);
    let Some(found) = state.get_own(&served.resource.storage, &key).await? else {
        return make_one(state, served, wanted).await;
    };
    let found = conversion::parse(&found)?;
    if revised(&found, wanted).is_none() {
        return Ok(());
    }
    let revise = |object: &mut Value| {
        if let Some(revised) = revised(object, wanted) {
            *object = revised;
        }
    };
    edit(state, served, None, wanted.name, PRODUCER, &revise).await
}

async fn make_one(state: &State, served: &Served, wanted: &Bootstrap) -> Result<(), Failure> {
    let object = json!({
        "kind": &*served.resource.kind, "apiVersion": served.api_version(),
        "metadata": {"name": wanted.name, "annotations": {AUTO_UPDATE: "true"}}, "spec": wanted.spec,
    });
    create(state, served, PRODUCER, object).await
}

/// The object in its wanted state; `None` if it already has it.
fn revised(found: &Value, wanted: &Bootstrap) -> Option<Value> {
    let said = str_at(found, &["metadata", "annotations", AUTO_UPDATE]).and_then(truth);
    let is_unchanged = at(found, &["metadata", "generation"]).and_then(Value::as_i64) == Some(1);
    let is_kept = wanted.is_mandatory || said.unwrap_or(is_unchanged);
    let mut revised = found.clone();
    if said != Some(is_kept) {
        set_at(&mut revised, &["metadata", "annotations", AUTO_UPDATE], Value::from(is_kept.to_string()));
    }
    if is_kept {
        let mut spec = wanted.spec.clone();
        // Administrators may set the shares of this level.
        if wanted.name == EXEMPT
            && let Some(shares) = at(found, &["spec", "exempt"])
        {
            set_at(&mut spec, &["exempt"], shares.clone());
        }
        set_at(&mut revised, &["spec"], spec);
    }
    (revised != *found).then_some(revised)
}

/// A boolean as Go parses it.
fn truth(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(annotation: Option<&str>, generation: i64, shares: i64) -> Value {
        let mut level = json!({"metadata": {"generation": generation}, "spec": bootstrap::levels()[2].spec});
        level["spec"]["limited"]["nominalConcurrencyShares"] = json!(shares);
        if let Some(annotation) = annotation {
            level["metadata"]["annotations"] = json!({ AUTO_UPDATE: annotation });
        }
        level
    }

    #[test]
    fn a_changed_spec_comes_back_unless_its_annotation_says_no() {
        let system = &bootstrap::levels()[2];
        let shares =
            |level: Value| Some(revised(&level, system)?["spec"]["limited"]["nominalConcurrencyShares"].clone());
        assert_eq!(shares(level(Some("true"), 2, 30)), None);
        assert_eq!(shares(level(Some("true"), 2, 31)), Some(json!(30)));
        assert_eq!(shares(level(Some("false"), 2, 31)), None);
        // Without the annotation the spec is the server's until somebody changes it.
        assert_eq!(shares(level(None, 1, 31)), Some(json!(30)));
        assert_eq!(shares(level(None, 2, 31)), Some(json!(31)));
        assert_eq!(revised(&level(None, 2, 31), system).unwrap()["metadata"]["annotations"][AUTO_UPDATE], "false");
        let mandatory = Bootstrap { is_mandatory: true, ..system.clone() };
        assert_eq!(revised(&level(Some("false"), 2, 31), &mandatory).unwrap(), level(Some("true"), 2, 30));
    }

    #[test]
    fn the_shares_of_the_exempt_level_may_be_set() {
        let exempt = &bootstrap::levels()[0];
        let mut level = json!({"metadata": {"annotations": {AUTO_UPDATE: "true"}}, "spec": exempt.spec});
        level["spec"]["exempt"]["lendablePercent"] = json!(7);
        assert_eq!(revised(&level, exempt), None);
    }
}
