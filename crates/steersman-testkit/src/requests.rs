//! The requests of users, as the permissions that they need.
//!
//! Each user has a set: a repeated request takes no more memory.

use http::{Method, StatusCode, Uri};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use steersman_codegen::rbac::{Permission, Permissions};
use steersman_server::query::Query;
use steersman_server::request_info::RequestInfo;
use steersman_server::user::User;

/// The permissions by the name of the user.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<BTreeMap<String, Permissions>>);

/// A request whose answer may show that it needed another permission.
pub(crate) struct Noted {
    user: String,
    permission: Permission,
}

impl Requests {
    /// Records a request. Paths without a resource, such as those of discovery, are open to all authenticated users.
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
            // A streaming list needs only `watch`, but with a server without streaming lists the same client lists.
            permissions.insert(Permission { verb: "list".to_owned(), ..permission.clone() });
        }
        Some(Noted { user: user.name.clone(), permission })
    }

    /// Records the status of the answer: an apply that creates an object needs the permission to create it as well.
    pub(crate) fn note_answer(&self, noted: Noted, status: StatusCode) {
        let Noted { user, permission } = noted;
        if status == StatusCode::CREATED && permission.verb == "patch" {
            let permission = Permission { verb: "create".to_owned(), ..permission };
            self.0.lock().entry(user).or_default().insert(permission);
        }
    }

    /// The permissions for all requests of a user.
    pub(crate) fn of(&self, user: &User) -> Permissions {
        self.0.lock().get(&user.name).cloned().unwrap_or_default()
    }
}
