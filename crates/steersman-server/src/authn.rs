//! Authentication: client certificates, bearer tokens, and callers inside the process.
//!
//! The transport verifies certificates and puts a [`Peer`] into the request's extensions; tokens are looked up here. A request
//! with neither is refused.

use crate::user::User;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::Arc;

/// The user of a connection, as the transport knows it: the subject of a verified client certificate, or the code that
/// calls the server within its process. Put into the extensions of every request of the connection.
#[derive(Clone, Debug)]
pub struct Peer(pub(crate) Arc<User>);

/// Finds out who sent a request.
#[derive(Debug, Default)]
pub struct Authenticator {
    tokens: Tokens,
}

/// The users of a token file, by the digest of their token: the tokens themselves are not kept.
#[derive(Debug, Default)]
pub struct Tokens {
    users: HashMap<[u8; 32], Arc<User>>,
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

impl Peer {
    /// The holder of a connection.
    pub fn new(user: User) -> Peer {
        Peer(Arc::new(user))
    }
}

impl Authenticator {
    /// An authenticator that knows these tokens, beside the users that the transport has authenticated.
    pub fn new(tokens: Tokens) -> Authenticator {
        Authenticator { tokens }
    }

    /// The user who sent a request, if known. A certificate takes precedence over a token.
    pub(crate) fn authenticate(&self, headers: &HeaderMap, extensions: &http::Extensions) -> Option<Arc<User>> {
        if let Some(Peer(user)) = extensions.get::<Peer>() {
            return Some(user.clone());
        }
        let header = headers.get(AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = header.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        self.tokens.find(token.trim()).cloned()
    }
}

impl Tokens {
    /// Reads a token file: one line for each user, `token,user,uid,"group1,group2"`; the groups may be absent.
    ///
    /// # Errors
    /// When a line is not of that form, naming the line (and never the token).
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

    fn find(&self, token: &str) -> Option<&Arc<User>> {
        self.users.get(&digest(token))
    }
}

/// The user that a verified client certificate stands for: the subject's common name, its organizations as groups.
///
/// `None` if the certificate cannot be read or names nobody.
pub fn certificate_user(der: &[u8]) -> Option<User> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?;
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned);
    (!name.is_empty()).then(|| User::authenticated(name, groups.collect::<Vec<_>>()))
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
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
        let alice = tokens.find("t1").unwrap();
        assert_eq!((alice.name.as_str(), alice.uid.as_str()), ("alice", "1001"));
        assert_eq!(alice.groups, ["developers", "testers", "system:authenticated"]);
        assert_eq!(tokens.find("t2").unwrap().groups, ["system:authenticated"]);
        assert!(tokens.find("t3").is_none());
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

    #[test]
    fn a_certificate_names_user_and_groups() {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, "alice");
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:masters");
        let key = rcgen::KeyPair::generate().unwrap();
        let user = certificate_user(params.self_signed(&key).unwrap().der()).unwrap();
        assert_eq!(
            (user.name.as_str(), user.groups.as_slice()),
            ("alice", ["system:masters".to_owned(), "system:authenticated".to_owned()].as_slice())
        );
        assert!(certificate_user(b"nonsense").is_none());
    }
}
