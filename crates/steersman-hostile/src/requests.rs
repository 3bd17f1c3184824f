//! Hostile requests by kind of attack. Each is what a user may send who has the ClusterRole `edit` in a namespace.

mod bodies;
mod parts;
mod patches;
mod protobuf;
mod reads;

use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use crate::client::Request;
pub use crate::requests::protobuf::object as protobuf_object;
use crate::schema::List;

/// The input from which requests are made.
pub struct Material<'a> {
    pub lists: &'a [List],
    /// The namespace of the user who sends them.
    pub namespace: &'a str,
    pub rng: StdRng,
}

/// A kind of attack.
pub type Maker = fn(&mut Material<'_>) -> Request;

/// All kinds, in the order of the report.
pub const ALL: &[(&str, Maker)] = &[
    ("list of empty items", lists),
    ("protobuf of empty messages", protobuf::pod),
    ("protobuf of any field", protobuf::any_field),
    ("protobuf of empty messages, small", protobuf::small_pod),
    ("defaults multiplied", bodies::defaults),
    ("defaults multiplied, small", bodies::small_defaults),
    ("words of an enum", bodies::words),
    ("strings for a pattern", bodies::patterns),
    ("items with a rule", bodies::rules),
    ("deep nesting", bodies::deep),
    ("aliases of YAML", bodies::yaml_aliases),
    ("block scalars of YAML", bodies::yaml_blocks),
    ("flow lists of YAML", bodies::yaml_flow),
    ("keys of a map", bodies::keys),
    ("labels", bodies::labels),
    ("errors", bodies::errors),
    ("unknown fields", bodies::unknown_fields),
    ("duplicate keys", bodies::duplicate_keys),
    ("duplicate items of a keyed list", bodies::duplicate_items),
    ("managed fields", bodies::managed_fields),
    ("valid containers", bodies::containers),
    ("parts of a Pod", parts::pod),
    ("parts of another object", parts::other),
    ("apply by many managers", patches::apply),
    ("apply of a long keyed list", patches::apply_keyed),
    ("JSON patch at index 0", patches::json_at_front),
    ("JSON patch that copies", patches::json_copies),
    ("JSON patch that tests", patches::json_tests),
    ("merge patch of all keys", patches::merge),
    ("$retainKeys", patches::retain_keys),
    ("$setElementOrder", patches::element_order),
    ("$deleteFromPrimitiveList", patches::delete_from_list),
    ("strategic merge of long lists", patches::strategic),
    ("selector of many terms", reads::selector),
    ("list as a table", reads::table),
    ("list without limit", reads::list),
    ("review of rules", reads::rules_review),
    ("review of access", reads::access_review),
];

/// Requests of all kinds, so many of each.
pub fn all(material: &mut Material<'_>, n_each: usize) -> Vec<Request> {
    let mut requests = Vec::new();
    for _ in 0..n_each {
        requests.extend(ALL.iter().map(|(family, make)| Request { family, ..make(material) }));
    }
    requests
}

/// A list of any kind, with as many items as fit into a request.
fn lists(material: &mut Material<'_>) -> Request {
    let Some(list) = material.lists.choose(&mut material.rng) else { return Request::get("/api") };
    let n_items = material.rng.random_range(100_000..700_000);
    let path = list.path.replace("{namespace}", material.namespace);
    Request::new("", "POST", format!("{path}?dryRun=All"), "application/json", list.object("hostile", n_items))
}

impl Material<'_> {
    fn core(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}", self.namespace)
    }

    fn targets(&self) -> String {
        format!("/apis/hostile.example.com/v1/namespaces/{}/targets", self.namespace)
    }

    fn deployments(&self) -> String {
        format!("/apis/apps/v1/namespaces/{}/deployments", self.namespace)
    }
}
