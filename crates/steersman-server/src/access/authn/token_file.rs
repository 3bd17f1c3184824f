//! The token file: users with static tokens.

use crate::shared::identity::digest_cache::{Digest, digest};
use std::collections::HashMap;
use std::sync::Arc;
use steersman_kinds::user::User;

/// The users of a token file, by the digest of their token: the tokens themselves are not stored.
#[derive(Debug, Default)]
pub struct Tokens {
    users: HashMap<Digest, Arc<User>>,
}

/// A token file that cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TokensError {
    #[error(
        "line {line} of the token file has {columns} columns: want token,user,uid and, quoted, the groups: token,user,uid,\"group1,group2\""
    )]
    Columns { line: usize, columns: usize },
    #[error("line {line} of the token file has an empty {column}")]
    Empty { line: usize, column: &'static str },
    #[error("line {line} of the token file repeats the token of an earlier line")]
    Repeated { line: usize },
    #[error("line {line} of the token file has a quote that is not closed")]
    Unclosed { line: usize },
}

impl Tokens {
    /// Parses a token file: one line for each user, `token,user,uid,"group1,group2"`; the groups are optional.
    ///
    /// # Errors
    /// When a line is malformed; the error has the line's number (and never the token).
    pub fn parse(csv: &str) -> Result<Tokens, TokensError> {
        let mut users = HashMap::new();
        for (index, text) in csv.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
            let line = index + 1;
            let columns = columns(text).ok_or(TokensError::Unclosed { line })?;
            let (token, name, uid, groups) = match columns.as_slice() {
                [token, name, uid] => (token, name, uid, ""),
                [token, name, uid, groups] => (token, name, uid, groups.as_str()),
                _ => return Err(TokensError::Columns { line, columns: columns.len() }),
            };
            for (column, value) in [("token", token), ("user", name)] {
                if value.is_empty() {
                    return Err(TokensError::Empty { line, column });
                }
            }
            let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty()).map(str::to_owned);
            let user = User { uid: uid.clone(), ..User::authenticated(name.clone(), groups) };
            if users.insert(digest(token), Arc::new(user)).is_some() {
                return Err(TokensError::Repeated { line });
            }
        }
        Ok(Tokens { users })
    }

    /// The user whose token has this digest.
    pub(super) fn find(&self, digest: &Digest) -> Option<&Arc<User>> {
        self.users.get(digest)
    }
}

/// The columns of a line of comma-separated values; `None` if a quote is not closed.
fn columns(line: &str) -> Option<Vec<String>> {
    let (mut columns, mut column, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.trim().chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                column.push('"');
                chars.next();
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => columns.push(std::mem::take(&mut column).trim().to_owned()),
            _ => column.push(char),
        }
    }
    columns.push(column.trim().to_owned());
    (!is_quoted).then_some(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_file_names_users_and_their_groups() {
        let tokens = Tokens::parse("t1,alice,1001,\"developers,testers\"\n\nt2,bob,1002\n").unwrap();
        let alice = tokens.find(&digest("t1")).unwrap();
        assert_eq!((alice.name.as_str(), alice.uid.as_str()), ("alice", "1001"));
        assert_eq!(alice.groups, ["developers", "testers", "system:authenticated"]);
        assert_eq!(tokens.find(&digest("t2")).unwrap().groups, ["system:authenticated"]);
        assert!(tokens.find(&digest("t3")).is_none());
    }

    #[test]
    fn a_bad_line_is_named_but_never_its_token() {
        for (csv, want) in [
            ("a,b\n", TokensError::Columns { line: 1, columns: 2 }),
            ("a,b,c\n,b,c", TokensError::Empty { line: 2, column: "token" }),
            ("a,b,c\na,d,e", TokensError::Repeated { line: 2 }),
            ("a,b,c,\"d", TokensError::Unclosed { line: 1 }),
        ] {
            assert_eq!(Tokens::parse(csv).unwrap_err(), want);
        }
    }
}
