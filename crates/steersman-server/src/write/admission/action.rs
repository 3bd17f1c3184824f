//! The action of a write, and the phase of admission.

/// The action of a write for admission: a PUT that creates is a create, a patch an update, and the body of a connecting
/// subresource such as `pods/binding` a create.
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
    /// The name in rules and in requests.
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
