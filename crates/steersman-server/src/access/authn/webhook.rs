//! Authentication by a webhook: posts a TokenReview to it, and reads the user of the token from its status. Follows
//! apiserver's `plugin/pkg/authenticator/token/webhook`.

use crate::access::authn::{Identity, common};
use crate::shared::identity::digest_cache::{DigestCache, digest};
use crate::shared::webhook::Client;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::user::User;
use tokio::time::Instant;

/// The timeout of all attempts together.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum size of the cache of answers.
const ANSWERS_MAX: usize = 8192;
const ANSWERS_BYTES_MAX: usize = 16 << 20;

/// How a webhook is called.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long an answer is cached; zero: not at all.
    pub ttl: Duration,
    pub version: ReviewVersion,
}

/// A version of TokenReview.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReviewVersion {
    V1,
    V1Beta1,
}

/// Calls a webhook.
#[derive(Debug)]
pub struct Webhook {
    client: Client,
    settings: Settings,
    answers: DigestCache<Arc<Answer>>,
}

#[derive(Debug)]
struct Answer {
    identity: Option<Identity>,
    until: Instant,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: &'static str,
    kind: &'static str,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Spec<'a> {
    token: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    audiences: &'a [String],
}

#[derive(Deserialize)]
struct Reviewed {
    status: Status,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    authenticated: bool,
    #[serde(default)]
    user: UserInfo,
    #[serde(default)]
    audiences: Vec<String>,
    #[serde(default)]
    error: String,
}

#[derive(Default, Deserialize)]
struct UserInfo {
    #[serde(default)]
    username: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

impl Default for Settings {
    /// The defaults of kube-apiserver's flags.
    fn default() -> Settings {
        Settings { ttl: Duration::from_secs(120), version: ReviewVersion::V1Beta1 }
    }
}

impl Webhook {
    pub fn new(client: Client, settings: Settings) -> Webhook {
        Webhook { client, settings, answers: DigestCache::new(ANSWERS_MAX, ANSWERS_BYTES_MAX) }
    }

    /// The user of a token, if the webhook recognizes it and it is valid for one of the audiences. `api_audiences` are
    /// the audiences of this server.
    ///
    /// # Errors
    /// When the webhook says why the token is not valid, or fails.
    pub(super) async fn authenticate(
        &self,
        token: &str,
        audiences: &[String],
        api_audiences: &[String],
    ) -> Result<Option<Identity>, String> {
        let review = self.review(token, audiences)?;
        // The key is the digest of the whole review, because the answer depends on the audiences.
        let key = digest(&review);
        if let Some(answer) = self.answers.get(&key).filter(|answer| Instant::now() < answer.until) {
            return Ok(answer.identity.clone());
        }
        let reviewed = tokio::time::timeout(TIMEOUT, self.ask(&review)).await;
        let reviewed =
            reviewed.map_err(|_| format!("the token webhook did not answer within {} s", TIMEOUT.as_secs()))?;
        let outcome = read(&reviewed?, audiences, api_audiences);
        // An error may pass, so it is not remembered.
        if let Ok(identity) = &outcome
            && !self.settings.ttl.is_zero()
        {
            let bytes = 512 + identity.as_ref().map_or(0, size);
            let answer = Answer { identity: identity.clone(), until: Instant::now() + self.settings.ttl };
            self.answers.insert(key, Arc::new(answer), bytes);
        }
        outcome
    }

    /// The body of the TokenReview.
    fn review(&self, token: &str, audiences: &[String]) -> Result<Bytes, String> {
        let api_version = match self.settings.version {
            ReviewVersion::V1 => "authentication.k8s.io/v1",
            ReviewVersion::V1Beta1 => "authentication.k8s.io/v1beta1",
        };
        let review = Review { api_version, kind: "TokenReview", spec: Spec { token, audiences } };
        serde_json::to_vec(&review).map(Bytes::from).map_err(|error| error.to_string())
    }

    async fn ask(&self, review: &Bytes) -> Result<Bytes, String> {
        self.client.post_again(review, TIMEOUT).await.map_err(|error| error.to_string())
    }
}

/// Reads an answer: whose token it is, as for [`Webhook::authenticate`].
///
/// # Errors
/// When it is no answer, or says why the token is not good.
pub(crate) fn read(answer: &[u8], audiences: &[String], api_audiences: &[String]) -> Result<Option<Identity>, String> {
    let reviewed: Reviewed =
        serde_json::from_slice(answer).map_err(|error| format!("the token webhook answers no TokenReview: {error}"))?;
    let Status { authenticated, user, audiences: given, error } = reviewed.status;
    if !authenticated {
        return if error.is_empty() { Ok(None) } else { Err(error) };
    }
    if user.username.is_empty() {
        return Err("the token webhook names no user".to_owned());
    }
    // A webhook that does not know about audiences answers for this server.
    let given = if given.is_empty() { api_audiences } else { &given };
    let in_common = common(audiences, given);
    if in_common.is_empty() && !audiences.is_empty() {
        return Ok(None);
    }
    let UserInfo { username, uid, groups, extra } = user;
    let user = User { uid, extra, ..User::authenticated(username, groups) };
    Ok(Some(Identity { user: Arc::new(user), audiences: in_common }))
}

/// The approximate size of an identity in bytes.
fn size(identity: &Identity) -> usize {
    let User { name, uid, groups, extra } = &*identity.user;
    let extra = extra.iter().map(|(key, values)| key.len() + values.iter().map(String::len).sum::<usize>());
    name.len() + uid.len() + groups.iter().map(|group| group.len() + 24).sum::<usize>() + extra.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(status: serde_json::Value, asked: &[&str], want: Result<Option<&[&str]>, &str>) {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let reviewed = json!({ "status": status }).to_string();
        let got = read(reviewed.as_bytes(), &texts(asked), &texts(&["api"]));
        let got = got.map(|identity| identity.map(|identity| identity.audiences));
        assert_eq!(got, want.map(|audiences| audiences.map(texts)).map_err(str::to_owned));
    }

    #[test]
    fn what_a_webhook_says_counts_for_the_audiences_it_names() {
        let jane =
            |audiences: &[&str]| json!({"authenticated": true, "user": {"username": "jane"}, "audiences": audiences});
        check(jane(&["vault"]), &["vault", "other"], Ok(Some(&["vault"])));
        check(jane(&["vault"]), &["api"], Ok(None));
        check(jane(&[]), &["api"], Ok(Some(&["api"])));
        check(jane(&[]), &["vault"], Ok(None));
        check(json!({"authenticated": false}), &["api"], Ok(None));
        check(json!({"error": "no"}), &["api"], Err("no"));
        check(json!({"authenticated": true}), &["api"], Err("the token webhook names no user"));
    }
}
