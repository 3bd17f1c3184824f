//! Prints an error with its causes on one line.

use std::error::Error;
use std::fmt;

use kube::core::Status;

/// Displays an error followed by its sources, `a: b: c`. A cause that its parent already printed is not repeated,
/// because several dependencies print their sources themselves.
pub(crate) struct Chain<'a>(pub(crate) &'a dyn Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = self.0.to_string();
        let mut whole = last.clone();
        let mut source = self.0.source();
        while let Some(error) = source {
            let text = error.to_string();
            if !last.contains(&text) {
                whole.push_str(": ");
                whole.push_str(&text);
                last = text;
            }
            if let Some(status) = answer(error) {
                whole = whole.replace(&format!("ApiError: {status} ({status:?})"), &status.to_string());
            }
            source = error.source();
        }
        f.write_str(&whole)
    }
}

/// The answer of the server: `kube::Error` prints it twice, the second time as a structure.
fn answer<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Status> {
    error.downcast_ref::<Box<Status>>().map(|status| &**status).or_else(|| error.downcast_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Failure {
        #[error("cannot write the greeting")]
        Write(#[source] kube::Error),
        #[error(transparent)]
        Transparent(#[from] kube::Error),
    }

    fn conflict() -> kube::Error {
        let status = Status::failure("the object has been modified", "Conflict").with_code(409);
        kube::Error::Api(Box::new(status))
    }

    #[test]
    fn what_the_server_answered_is_said_once_and_in_its_words() {
        let said = "the object has been modified: Conflict";
        assert_eq!(Chain(&conflict()).to_string(), said);
        assert_eq!(Chain(&Failure::Transparent(conflict())).to_string(), said);
        assert_eq!(Chain(&Failure::Write(conflict())).to_string(), format!("cannot write the greeting: {said}"));
    }
}
