//! Prints an error with its causes on one line.

use std::error::Error;
use std::fmt;

/// Displays an error followed by its sources, `a: b: c`. A cause that its parent already printed is not repeated,
/// because several of our dependencies print their sources themselves.
pub(crate) struct Chain<'a>(pub(crate) &'a dyn Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = self.0.to_string();
        f.write_str(&last)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            let text = error.to_string();
            if !last.contains(&text) {
                write!(f, ": {text}")?;
                last = text;
            }
            source = error.source();
        }
        Ok(())
    }
}
