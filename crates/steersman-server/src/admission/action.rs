//! What a write does, and in which phase of admission it is.

/// What a write does, in terms of admission: a PUT that creates counts as a creation, a patch as an update, and the body of a
/// connecting subresource such as `pods/binding` as a creation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Action {
    Connect,
    Create,
    Delete,
    Update,
}

/// The phase in which a plugin is called.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    Mutate,
    Validate,
}

impl Action {
    /// The word in rules and in requests.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Action::Connect => "CONNECT",
            Action::Create => "CREATE",
            Action::Delete => "DELETE",
            Action::Update => "UPDATE",
        }
    }
}

impl Phase {
    /// Whether plugins see objects in the internal form.
    pub(crate) fn is_internal(self) -> bool {
        self == Phase::Validate
    }
}
