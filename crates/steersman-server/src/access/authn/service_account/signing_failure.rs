//! The failures of tokens that cannot be signed.

use crate::access::authn::service_account::keyring::SignError;
use crate::shared::status::Failure;
use std::error::Error as _;

impl Failure {
    /// The answer to a request for a token that could not be signed.
    pub(crate) fn of_signing(error: &SignError) -> Failure {
        match error {
            SignError::Stopping => Failure::unavailable("the server is shutting down"),
            SignError::Keep(_) | SignError::Make(_) | SignError::NoKey | SignError::Random => {
                tracing::error!(error = %error, cause = error.source(), "a token could not be signed");
                Failure::internal(error.to_string())
            }
        }
    }
}
