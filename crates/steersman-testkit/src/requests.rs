//! What users have asked for, as the permissions that it takes.
//!
//! Kept for each user as a set: a request that was made before takes no more memory.

use http::{Method, StatusCode, Uri};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use steersman_codegen::rbac::{Permission, Permissions};
use steersman_server::query::Query;
use steersman_server::request_info::RequestInfo;
use steersman_server::user::User;

/// By the name of the user.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<BTreeMap<String, Permissions>>);

/// A request whose answer may say that it took another permission.
pub(crate) struct Noted {
    user: String,
    permission: Permission,
}

impl Requests {
    /// Notes a request. Paths that name no resource, such as those of discovery, are open to everybody who is authenticated.
    pub(crate) fn note(&self, user: &User, method: &Method, uri: &Uri) -> Option<Noted> {
        let query = Query::parse(uri.query().unwrap_or_default());
        let info = RequestInfo::new(method, uri.path(), &query);
        let target = info.target.filter(|target| !target.resource.is_empty())?;
        let resource = match &target.subresource {
            None => target.resource,
            Some(subresource) => format!("{}/{subresource}", target.resource),
        };
        let permission =
            Permission { namespace: target.namespace, group: target.group, resource, verb: info.verb.to_owned() };
        let mut requests = self.0.lock();
        let permissions = requests.entry(user.name.clone()).or_default();
        permissions.insert(permission.clone());
        if permission.verb == "watch" && query.is_true("sendInitialEvents") {
            // A list as a stream, which takes no other permission. Of a server without such streams, the same client lists.
            permissions.insert(Permission { verb: "list".to_owned(), ..permission.clone() });
        }
        Some(Noted { user: user.name.clone(), permission })
    }

    /// Notes the status of the answer: an apply that makes an object takes the permission to create it as well.
    pub(crate) fn note_answer(&self, noted: Noted, status: StatusCode) {
        let Noted { user, permission } = noted;
        if status == StatusCode::CREATED && permission.verb == "patch" {
            let permission = Permission { verb: "create".to_owned(), ..permission };
            self.0.lock().entry(user).or_default().insert(permission);
        }
    }

    /// What a user has asked for.
    pub(crate) fn of(&self, user: &User) -> Permissions {
        self.0.lock().get(&user.name).cloned().unwrap_or_default()
    }
}
