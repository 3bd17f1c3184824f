//! The parameters of operations.

/// A parameter in the path or in the query.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    /// `string`, `integer` or `boolean`.
    pub(super) kind: &'static str,
    pub(super) location: ParameterLocation,
}

/// The location of a parameter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ParameterLocation {
    Path,
    Query,
}

pub(super) const NAME: Parameter = Parameter { name: "name", kind: "string", location: ParameterLocation::Path };
pub(super) const NAMESPACE: Parameter =
    Parameter { name: "namespace", kind: "string", location: ParameterLocation::Path };
pub(super) const PRETTY: Parameter = query("pretty", "string");

/// The parameters of lists and watches.
pub(super) const LIST: &[Parameter] = &[
    query("allowWatchBookmarks", "boolean"),
    query("continue", "string"),
    query("fieldSelector", "string"),
    query("labelSelector", "string"),
    query("limit", "integer"),
    query("resourceVersion", "string"),
    query("resourceVersionMatch", "string"),
    query("sendInitialEvents", "boolean"),
    query("timeoutSeconds", "integer"),
    query("watch", "boolean"),
];

/// The parameters of creations and replacements.
pub(super) const WRITE: &[Parameter] =
    &[query("dryRun", "string"), query("fieldManager", "string"), query("fieldValidation", "string")];

/// The parameters of the deletion of one object.
pub(super) const DELETE: &[Parameter] = &[
    query("dryRun", "string"),
    query("gracePeriodSeconds", "integer"),
    query("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    query("orphanDependents", "boolean"),
    query("propagationPolicy", "string"),
];

const fn query(name: &'static str, kind: &'static str) -> Parameter {
    Parameter { name, kind, location: ParameterLocation::Query }
}

/// The parameters of patches.
pub(super) fn patch() -> Vec<Parameter> {
    WRITE.iter().copied().chain([query("force", "boolean")]).collect()
}

/// The parameters of the deletion of a collection.
pub(super) fn delete_collection() -> Vec<Parameter> {
    let mut all: Vec<Parameter> = DELETE.iter().chain(LIST).copied().collect();
    all.retain(|parameter| !matches!(parameter.name, "allowWatchBookmarks" | "watch"));
    all.sort_by_key(|parameter| parameter.name);
    all
}
