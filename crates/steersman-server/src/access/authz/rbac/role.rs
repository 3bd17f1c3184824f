//! The rules of a role, found by what a request asks for.
//!
//! Roles are small, and looking through a few rules is fast. One with many has an index of single permissions: group, resource, verb and
//! name, or verb and path. A rule that combines many of them is not taken apart: such rules are looked through, and the size that an object
//! may have bounds how many words they have.

use crate::access::authz::rbac::rule::Rule;
use crate::shared::operation::{Attributes, ResourceAttributes};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A role with no more rules than this is looked through.
const UNINDEXED_MAX: usize = 64;
/// A rule with no more permissions than this is taken apart.
const PERMISSIONS_MAX: usize = 32;
/// Stands for all words of its kind.
const ALL: &str = "*";

/// The rules of a role.
#[derive(Clone, Debug)]
pub(crate) struct Role {
    rules: Arc<[Rule]>,
    index: Option<Arc<Index>>,
}

#[derive(Debug, Default)]
struct Index {
    /// The words of the permissions. They come from users, so the hasher resists collisions.
    words: HashMap<Box<str>, Word>,
    on_resources: HashSet<OnResource>,
    on_paths: HashSet<OnPath>,
    /// The places of rules that are not taken apart.
    others: Vec<usize>,
}

/// The number of a word.
type Word = u32;

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct OnResource {
    group: Word,
    /// As rules write it: `pods`, `pods/log`, `*/log`.
    resource: Word,
    verb: Word,
    /// `None`: whatever the name.
    name: Option<Word>,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct OnPath {
    verb: Word,
    /// Without a `*` at its end.
    path: Word,
}

impl Role {
    pub(crate) fn new(rules: Vec<Rule>) -> Role {
        let index = (UNINDEXED_MAX < rules.len()).then(|| Arc::new(Index::of(&rules)));
        Role { rules: rules.into(), index }
    }

    pub(crate) fn rules(&self) -> &Arc<[Rule]> {
        &self.rules
    }

    /// Whether one of the rules allows what a request asks.
    pub(crate) fn allows(&self, attributes: &Attributes<'_>) -> bool {
        match &self.index {
            None => self.rules.iter().any(|rule| rule.allows(attributes)),
            Some(index) => {
                index.allows(attributes) || index.others.iter().any(|place| self.rules[*place].allows(attributes))
            }
        }
    }
}

impl Index {
    fn of(rules: &[Rule]) -> Index {
        let mut index = Index::default();
        for (place, rule) in rules.iter().enumerate() {
            let has_open_path = rule.non_resource_urls.iter().any(|path| path.ends_with('*'));
            if PERMISSIONS_MAX < n_permissions(rule) || has_open_path {
                index.others.push(place);
            } else {
                index.take_apart(rule);
            }
        }
        index
    }

    fn take_apart(&mut self, rule: &Rule) {
        let mut words = |texts: &[String]| texts.iter().map(|text| self.word(text)).collect::<Vec<Word>>();
        let (groups, resources, verbs) = (words(&rule.api_groups), words(&rule.resources), words(&rule.verbs));
        let (names, paths) = (words(&rule.resource_names), words(&rule.non_resource_urls));
        let names: Vec<_> = if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
        for verb in verbs {
            self.on_paths.extend(paths.iter().map(|path| OnPath { verb, path: *path }));
            for group in &groups {
                for resource in &resources {
                    let of = |name: &Option<Word>| OnResource { group: *group, resource: *resource, verb, name: *name };
                    self.on_resources.extend(names.iter().map(of));
                }
            }
        }
    }

    /// The number of a word, which it may get here.
    fn word(&mut self, text: &str) -> Word {
        if let Some(word) = self.words.get(text) {
            return *word;
        }
        // An object has far fewer words than there are numbers.
        let word = Word::try_from(self.words.len()).unwrap_or(Word::MAX);
        self.words.insert(text.into(), word);
        word
    }

    fn allows(&self, attributes: &Attributes<'_>) -> bool {
        match attributes {
            Attributes::NonResource { verb, path } => {
                let Some(path) = self.words.get(*path) else { return false };
                self.known([*verb, ALL]).any(|verb| self.on_paths.contains(&OnPath { verb, path: *path }))
            }
            Attributes::Resource(asked) => self.allows_resource(asked),
        }
    }

    fn allows_resource(&self, asked: &ResourceAttributes<'_>) -> bool {
        let subresource = asked.subresource.filter(|subresource| !subresource.is_empty());
        let (own, of_all) = match subresource {
            None => (asked.resource.to_owned(), ALL.to_owned()),
            Some(subresource) => (format!("{}/{subresource}", asked.resource), format!("*/{subresource}")),
        };
        let name = self.words.get(asked.name.unwrap_or_default()).copied();
        for group in self.known([asked.group, ALL]) {
            for resource in self.known([&*own, &*of_all, ALL]) {
                for verb in self.known([asked.verb, ALL]) {
                    let of = |name| OnResource { group, resource, verb, name };
                    let is_named = name.is_some_and(|name| self.on_resources.contains(&of(Some(name))));
                    if is_named || self.on_resources.contains(&of(None)) {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// The numbers of those words that a permission has.
    fn known<const N: usize>(&self, texts: [&str; N]) -> impl Iterator<Item = Word> {
        texts.map(|text| self.words.get(text).copied()).into_iter().flatten()
    }
}

fn n_permissions(rule: &Rule) -> usize {
    let Rule { api_groups, non_resource_urls, resource_names, resources, verbs } = rule;
    let on_resources = [resources.len(), verbs.len(), resource_names.len().max(1)];
    let on_resources = on_resources.into_iter().fold(api_groups.len(), usize::saturating_mul);
    on_resources.saturating_add(non_resource_urls.len().saturating_mul(verbs.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::Strategy;
    use proptest::{collection, prop_assert_eq, proptest, sample};

    fn words(from: &'static [&'static str], n_max: usize) -> impl Strategy<Value = Vec<String>> {
        collection::vec(sample::select(from), 0..=n_max)
            .prop_map(|words| words.into_iter().map(str::to_owned).collect())
    }

    fn rules() -> impl Strategy<Value = Vec<Rule>> {
        let resources = words(&["*", "a", "b", "a/s", "*/s", "b/s"], 3);
        let parts = (words(&["", "*", "g"], 2), resources, words(&["*", "get", "put"], 2));
        let more = (words(&["", "n", "m"], 2), words(&["/p", "/q", "/p*", "/*", "*"], 2));
        let rule = (parts, more).prop_map(|((api_groups, resources, verbs), (resource_names, non_resource_urls))| {
            Rule { api_groups, non_resource_urls, resource_names, resources, verbs }
        });
        collection::vec(rule, 0..6)
    }

    proptest! {
        #[test]
        fn a_role_with_an_index_allows_what_its_rules_allow(rules in rules()) {
            let role = Role { index: Some(Arc::new(Index::of(&rules))), rules: rules.clone().into() };
            let mut asked = Vec::new();
            for verb in ["get", "put", "other"] {
                for path in ["/p", "/p/q", "/q", "/other"] {
                    asked.push(Attributes::NonResource { verb, path });
                }
                for (group, resource) in [("", "a"), ("g", "a"), ("", "b"), ("other", "other")] {
                    for subresource in [None, Some(""), Some("s"), Some("other")] {
                        for name in [None, Some(""), Some("n"), Some("other")] {
                            let of = ResourceAttributes { verb, group, resource, subresource, name, ..Default::default() };
                            asked.push(Attributes::Resource(of));
                        }
                    }
                }
            }
            for attributes in &asked {
                let want = rules.iter().any(|rule| rule.allows(attributes));
                prop_assert_eq!(role.allows(attributes), want, "{:?}", attributes);
            }
        }
    }

    #[test]
    fn a_request_costs_a_role_of_very_many_rules_no_look_at_each() {
        let rule = |n: usize| Rule {
            api_groups: vec![String::new()],
            resources: vec!["configmaps".to_owned()],
            verbs: vec!["get".to_owned()],
            resource_names: vec![format!("c-{n}")],
            ..Rule::default()
        };
        let role = Role::new((0..20_000).map(rule).collect());
        let index = role.index.as_ref().unwrap();
        assert_eq!((index.on_resources.len(), index.others.len()), (20_000, 0));
        let of =
            |name| ResourceAttributes { verb: "get", resource: "configmaps", name: Some(name), ..Default::default() };
        assert!(role.allows(&Attributes::Resource(of("c-19999"))));
        assert!(!role.allows(&Attributes::Resource(of("c-20000"))));
    }
}
