//! A definition as written, for the checks.

use steersman_machinery::Value;

/// A schema as written. Empty values count as absent.
#[derive(Clone, Copy)]
pub(crate) struct Node<'v>(pub(crate) &'v Value);

impl<'v> Node<'v> {
    pub(crate) fn get(self, key: &str) -> Option<&'v Value> {
        self.0.get(key).filter(|value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(_) | Value::Bool(true) | Value::Number(_) => true,
        })
    }

    pub(crate) fn has(self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn text(self, key: &str) -> &'v str {
        self.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn flag(self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn node(self, key: &str) -> Option<Node<'v>> {
        self.get(key).filter(|value| value.is_object()).map(Node)
    }

    pub(crate) fn nodes(self, key: &str) -> impl Iterator<Item = (usize, Node<'v>)> {
        self.get(key).and_then(Value::as_array).into_iter().flatten().map(Node).enumerate()
    }

    pub(crate) fn properties(self) -> impl Iterator<Item = (&'v str, Node<'v>)> {
        self.named("properties")
    }

    pub(crate) fn named(self, key: &str) -> impl Iterator<Item = (&'v str, Node<'v>)> {
        let fields = self.get(key).and_then(Value::as_object).into_iter().flatten();
        fields.map(|(name, node)| (name.as_str(), Node(node)))
    }

    pub(crate) fn property(self, name: &str) -> Option<Node<'v>> {
        self.get("properties")?.get(name).map(Node)
    }

    pub(crate) fn texts(self, key: &str) -> Vec<&'v str> {
        self.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    }

    pub(crate) fn is_embedded(self) -> bool {
        self.flag("x-kubernetes-embedded-resource")
    }
}
