//! The two ways in which the injector gets a Pod, as metrics name them.

/// Whether a Pod came through the initializer or the webhook.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Way {
    Initializer,
    Webhook,
}

impl Way {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Way::Initializer => "initializer",
            Way::Webhook => "webhook",
        }
    }
}
