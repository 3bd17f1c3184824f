//! The keys of service account tokens: the one that signs now, and those whose tokens are still valid.
//!
//! The keys are either given to the server, and then never change, or generated here: the first when the first token is
//! requested (an RSA key takes some hundred milliseconds, and most servers in tests issue no token), another one every
//! [`ROTATE_AFTER`]. A new key is published for [`PUBLISH_BEFORE`] before it signs, because clients may cache the key
//! set for that long. An old key verifies until the last token that it signed has expired: each key records when that
//! may be, and the record is stored before the token is returned.
//!
//! Servers that share a store have their generated keys there, and follow those of the others ([`Keyring::in_store`]).

use crate::access::authn::jws;
use crate::access::authn::key::{Algorithm, KeyError, PublicKey, SigningKey};
use crate::access::authn::service_account::stored_keys::{self, StoreKeeper};
use crate::shared::follower::Progress;
use arc_swap::ArcSwap;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use std::fmt;
use std::io;
use std::sync::Arc;
use steersman_storage::{ReadError, Store};

/// The age at which a key is replaced by a new one.
const ROTATE_AFTER: SignedDuration = SignedDuration::from_hours(90 * 24);
/// The time for which a new key is published before it signs.
const PUBLISH_BEFORE: SignedDuration = SignedDuration::from_hours(1);
/// The time for which a key may be needed after its creation, unless a token lives longer: it signs for
/// [`ROTATE_AFTER`], and tokens of pods are valid for a year at most.
const NEEDED_FOR: SignedDuration = SignedDuration::from_hours((90 + 366 + 1) * 24);
/// The time after its expiration for which a token may still be accepted.
const LEEWAY: SignedDuration = SignedDuration::from_mins(2);

/// The keys of service account tokens.
#[derive(Debug)]
pub struct Keyring {
    keys: ArcSwap<Keys>,
    /// Generates keys; `None` if all of them were given.
    maker: Option<Maker>,
    /// Held while a key is generated or its record changed, so that only one change happens at a time.
    changing: tokio::sync::Mutex<()>,
    /// Whether the keys are in a store, where other servers may change them.
    is_followed: bool,
    /// The revision up to which the keys in the store are known.
    progress: Progress,
}

/// Stores generated keys beyond the life of the process. Called on a thread that may block.
pub trait Keeper: fmt::Debug + Send + Sync {
    /// Stores a key, in place of an older record of it. Returns when the record would survive a crash.
    ///
    /// # Errors
    /// When it cannot be stored: then no token is signed with it.
    fn save(&self, key: &StoredKey) -> io::Result<()>;

    /// Removes a key that is no longer needed.
    ///
    /// # Errors
    /// When it cannot be removed. Removal is retried later.
    fn remove(&self, key: &StoredKey) -> io::Result<()>;
}

/// A key with its record, as a keeper stores it.
#[derive(Clone, Eq, PartialEq)]
pub struct StoredKey {
    /// The time of creation. It differs by at least a second between the keys of a keyring.
    pub created: Timestamp,
    /// The expiration of the last token that it may have signed; `None`: never.
    pub needed_until: Option<Timestamp>,
    /// The private key.
    pub pem: String,
}

/// Why a stored key cannot be parsed.
#[derive(Debug, thiserror::Error)]
pub enum StoredKeyError {
    #[error("its line {line} is not `{name}: TIME`")]
    Line { line: usize, name: &'static str },
    #[error(transparent)]
    Key(#[from] KeyError),
}

#[derive(Debug)]
struct Maker {
    algorithm: Algorithm,
    keeper: Option<Arc<dyn Keeper>>,
}

#[derive(Clone, Debug, Default)]
struct Keys {
    /// The given signing key, which is preferred to generated ones.
    signing: Option<Arc<SigningKey>>,
    /// The given keys that only verify.
    trusted: Vec<PublicKey>,
    /// The generated keys, the oldest first.
    made: Vec<Made>,
}

#[derive(Clone, Debug)]
struct Made {
    key: Arc<SigningKey>,
    stored: StoredKey,
}

/// Why a token could not be signed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignError {
    #[error("there is no key to sign tokens with: name one with --service-account-signing-key-file")]
    NoKey,
    #[error("a key for tokens could not be made")]
    Make(#[source] KeyError),
    #[error("a key for tokens could not be kept")]
    Keep(#[source] io::Error),
    #[error("the system gave no random numbers for a signature")]
    Random,
    #[error("the server is shutting down")]
    Stopping,
}

// === impl Keyring ===

impl Keyring {
    /// A keyring of given keys: one that signs, if any, and others that verify.
    pub fn given(signing: Option<SigningKey>, trusted: Vec<PublicKey>) -> Keyring {
        let keys = Keys { signing: signing.map(Arc::new), trusted, made: Vec::new() };
        Keyring {
            keys: ArcSwap::from_pointee(keys),
            maker: None,
            changing: Default::default(),
            is_followed: false,
            progress: Progress::default(),
        }
    }

    /// A keyring that generates keys, besides given ones that verify. `stored` are the keys generated before; without a
    /// keeper, new ones live as long as the process.
    ///
    /// # Errors
    /// When a stored key cannot be used.
    pub fn made(
        algorithm: Algorithm,
        stored: Vec<StoredKey>,
        keeper: Option<Arc<dyn Keeper>>,
        trusted: Vec<PublicKey>,
    ) -> Result<Keyring, KeyError> {
        let mut made = Vec::new();
        for stored in stored {
            made.push(Made { key: Arc::new(SigningKey::read(&stored.pem)?), stored });
        }
        made.sort_by_key(|made| made.stored.created);
        let keys = Keys { signing: None, trusted, made };
        let maker = Some(Maker { algorithm, keeper });
        Ok(Keyring {
            keys: ArcSwap::from_pointee(keys),
            maker,
            changing: Default::default(),
            is_followed: false,
            progress: Progress::default(),
        })
    }

    /// A keyring that generates keys and has them in a store, which other servers may share, besides given ones that
    /// verify. A server with this keyring follows the keys of the others.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn in_store(algorithm: Algorithm, store: &Store, trusted: Vec<PublicKey>) -> Result<Keyring, ReadError> {
        let maker = Some(Maker { algorithm, keeper: Some(Arc::new(StoreKeeper(store.clone()))) });
        let keys = Keys { signing: None, trusted, made: Vec::new() };
        let ring = Keyring {
            keys: ArcSwap::from_pointee(keys),
            maker,
            changing: Default::default(),
            is_followed: true,
            progress: Progress::default(),
        };
        ring.replace_made(stored_keys::read(store)?);
        Ok(ring)
    }

    /// A keyring with a P-256 key that is generated at first use and lives as long as the process.
    pub fn in_memory() -> Keyring {
        let maker = Some(Maker { algorithm: Algorithm::Es256, keeper: None });
        Keyring {
            keys: ArcSwap::default(),
            maker,
            changing: Default::default(),
            is_followed: false,
            progress: Progress::default(),
        }
    }

    /// Whether the keys are in the store, where other servers may change them.
    pub(crate) fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// Waits until the keys of other servers are known that could be read when this was called.
    pub(crate) async fn catch_up(&self, store: &Store) {
        if self.is_followed {
            self.progress.wait_for(store.newest(&stored_keys::resource()).revision()).await;
        }
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Takes the keys in the store, in place of all generated ones.
    pub(super) fn replace_made(&self, stored: Vec<StoredKey>) {
        self.keys.rcu(|keys| {
            let mut next = Keys { made: Vec::new(), ..Keys::clone(keys) };
            stored.iter().for_each(|stored| next.put(keys, stored));
            next
        });
    }

    /// Takes a key of the store, or its newer record.
    pub(super) fn add_made(&self, stored: StoredKey) {
        self.keys.rcu(|keys| {
            let mut next = Keys::clone(keys);
            next.put(keys, &stored);
            next
        });
    }

    /// Drops a key that was removed from the store.
    pub(super) fn remove_made(&self, stored: &StoredKey) {
        self.keys.rcu(|keys| {
            let mut next = Keys::clone(keys);
            next.made.retain(|made| made.stored.pem != stored.pem);
            next
        });
    }

    /// Whether tokens can be signed.
    pub(crate) fn can_sign(&self) -> bool {
        self.maker.is_some() || self.keys.load().signing.is_some()
    }

    /// The keys that verify, beginning with those that sign.
    pub(crate) fn verifying(&self) -> Vec<PublicKey> {
        let keys = self.keys.load();
        let mut all: Vec<PublicKey> = Vec::new();
        let signing = keys.signing.iter().chain(keys.made.iter().rev().map(|made| &made.key));
        for key in signing.map(|key| key.public()).chain(&keys.trusted) {
            if !all.contains(key) {
                all.push(key.clone());
            }
        }
        all
    }

    /// Whether a key of the ring signed a token.
    pub(crate) fn verifies(&self, token: &jws::Jws<'_>) -> bool {
        let keys = self.keys.load();
        let signing = keys.signing.iter().chain(keys.made.iter().map(|made| &made.key));
        token.is_signed_by(signing.map(|key| key.public()).chain(&keys.trusted))
    }

    /// Signs a token with these claims that expires at `until`, or never.
    ///
    /// # Errors
    /// When there is no key, and none can be generated or stored.
    pub(crate) async fn sign(
        &self,
        claims: &impl Serialize,
        until: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<String, SignError> {
        let key = self.signing_key(until, now).await?;
        jws::sign(&key, claims).ok_or(SignError::Random)
    }

    /// The key that signs; it is generated if there is none yet.
    pub(crate) async fn signing_key(
        &self,
        until: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Arc<SigningKey>, SignError> {
        if let Some(key) = self.keys.load().ready(until, now) {
            return Ok(key);
        }
        let maker = self.maker.as_ref().ok_or(SignError::NoKey)?;
        let _changing = self.changing.lock().await;
        let keys = self.keys.load_full();
        // Another request may have generated it in the meantime.
        if let Some(key) = keys.ready(until, now) {
            return Ok(key);
        }
        let changed = match keys.signing_at(now) {
            Some(index) => {
                let mut made = keys.made[index].clone();
                made.stored.needed_until = until.map(|until| until + LEEWAY);
                maker.keep(&made).await?;
                made
            }
            None => maker.make(until, now).await?,
        };
        self.hold(&changed);
        Ok(changed.key)
    }

    /// Generates another key if the newest is old, and drops keys whose tokens have expired. Does nothing while there
    /// is no key.
    ///
    /// # Errors
    /// When a key cannot be generated, stored or removed.
    pub(crate) async fn rotate(&self, now: Timestamp) -> Result<(), SignError> {
        let Some(maker) = &self.maker else { return Ok(()) };
        let _changing = self.changing.lock().await;
        let Some(newest) = self.keys.load().made.last().map(|made| made.stored.created) else { return Ok(()) };
        if newest + ROTATE_AFTER <= now {
            self.hold(&maker.make(Some(now), now).await?);
            tracing::info!(
                "service account tokens are signed with another key from now on; the old one still verifies"
            );
        }
        let keys = self.keys.load_full();
        let is_over = |made: &Made| made.stored.needed_until.is_some_and(|until| until < now);
        for made in keys.made.iter().take(keys.signing_at(now).unwrap_or(0)).filter(|made| is_over(made)) {
            maker.remove(made.clone()).await?;
            self.remove_made(&made.stored);
        }
        Ok(())
    }

    /// Takes a key that was generated here, or its newer record.
    fn hold(&self, made: &Made) {
        self.keys.rcu(|keys| {
            let mut next = Keys::clone(keys);
            next.insert(made.clone());
            next
        });
    }
}

// === impl Keys ===

impl Keys {
    /// Adds a generated key, in place of an older record of it.
    fn insert(&mut self, mut made: Made) {
        if let Some(known) = self.made.iter().find(|other| other.stored.pem == made.stored.pem) {
            let needed = Option::zip(known.stored.needed_until, made.stored.needed_until);
            made.stored.needed_until = needed.map(|(known, made)| known.max(made));
        }
        self.made.retain(|other| other.stored.pem != made.stored.pem);
        let at = self.made.partition_point(|other| other.stored.created <= made.stored.created);
        self.made.insert(at, made);
    }

    /// Adds a stored key. It is read, unless it is one of `known`.
    fn put(&mut self, known: &Keys, stored: &StoredKey) {
        let key = match known.made.iter().find(|made| made.stored.pem == stored.pem) {
            Some(made) => Ok(made.key.clone()),
            None => SigningKey::read(&stored.pem).map(Arc::new),
        };
        match key {
            Ok(key) => self.insert(Made { key, stored: stored.clone() }),
            Err(error) => tracing::error!(%error, "a key of service account tokens in the store cannot be used"),
        }
    }

    /// The key that signs, if its record covers a token that expires at `until`.
    fn ready(&self, until: Option<Timestamp>, now: Timestamp) -> Option<Arc<SigningKey>> {
        if let Some(key) = &self.signing {
            return Some(key.clone());
        }
        let made = &self.made[self.signing_at(now)?];
        let is_covered = match (made.stored.needed_until, until) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(needed), Some(until)) => until + LEEWAY <= needed,
        };
        is_covered.then(|| made.key.clone())
    }

    /// The newest key that has been published for long enough, or else the oldest.
    fn signing_at(&self, now: Timestamp) -> Option<usize> {
        let is_published = |made: &Made| made.stored.created + PUBLISH_BEFORE <= now;
        self.made.iter().rposition(is_published).or(if self.made.is_empty() { None } else { Some(0) })
    }
}

// === impl Maker ===

impl Maker {
    async fn make(&self, until: Option<Timestamp>, now: Timestamp) -> Result<Made, SignError> {
        let algorithm = self.algorithm;
        let generated = tokio::task::spawn_blocking(move || SigningKey::generate(algorithm)).await;
        let (key, pem) = generated.map_err(|_| SignError::Stopping)?.map_err(SignError::Make)?;
        let needed_until = until.map(|until| (until + LEEWAY).max(now + NEEDED_FOR));
        let made = Made { key: Arc::new(key), stored: StoredKey { created: now, needed_until, pem } };
        self.keep(&made).await?;
        Ok(made)
    }

    async fn keep(&self, made: &Made) -> Result<(), SignError> {
        let Some(keeper) = self.keeper.clone() else { return Ok(()) };
        let stored = made.stored.clone();
        let kept = tokio::task::spawn_blocking(move || keeper.save(&stored)).await;
        kept.map_err(|_| SignError::Stopping)?.map_err(SignError::Keep)
    }

    async fn remove(&self, made: Made) -> Result<(), SignError> {
        let Some(keeper) = self.keeper.clone() else { return Ok(()) };
        let removed = tokio::task::spawn_blocking(move || keeper.remove(&made.stored)).await;
        removed.map_err(|_| SignError::Stopping)?.map_err(SignError::Keep)
    }
}

// === impl StoredKey ===

impl StoredKey {
    /// The text of a file: two lines before the PEM, which other programs skip.
    pub fn to_text(&self) -> String {
        let until = self.needed_until.map_or("forever".to_owned(), |until| until.to_string());
        format!("created: {}\nneeded-until: {until}\n{}", self.created, self.pem)
    }

    /// Parses the text of such a file.
    ///
    /// # Errors
    /// When a line is missing, or the key cannot be used.
    pub fn parse(text: &str) -> Result<StoredKey, StoredKeyError> {
        let mut lines = text.splitn(3, '\n');
        let mut line = |line: usize, name: &'static str| {
            let text = lines.next().and_then(|text| text.strip_prefix(name)).and_then(|text| text.strip_prefix(": "));
            text.map(str::trim).ok_or(StoredKeyError::Line { line, name })
        };
        let created = line(1, "created")?;
        let created = created.parse().map_err(|_| StoredKeyError::Line { line: 1, name: "created" })?;
        let needed_until = match line(2, "needed-until")? {
            "forever" => None,
            time => Some(time.parse().map_err(|_| StoredKeyError::Line { line: 2, name: "needed-until" })?),
        };
        let pem = lines.next().unwrap_or_default().to_owned();
        SigningKey::read(&pem)?;
        Ok(StoredKey { created, needed_until, pem })
    }
}

impl fmt::Debug for StoredKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StoredKey { created, needed_until, pem: _ } = self;
        f.debug_struct("StoredKey")
            .field("created", created)
            .field("needed_until", needed_until)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::collections::BTreeMap;

    /// Files in memory.
    #[derive(Debug, Default)]
    struct Files(Mutex<BTreeMap<Timestamp, String>>);

    impl Keeper for Files {
        fn save(&self, key: &StoredKey) -> io::Result<()> {
            self.0.lock().insert(key.created, key.to_text());
            Ok(())
        }

        fn remove(&self, key: &StoredKey) -> io::Result<()> {
            self.0.lock().remove(&key.created);
            Ok(())
        }
    }

    impl Files {
        fn read(&self) -> Vec<StoredKey> {
            self.0.lock().values().map(|text| StoredKey::parse(text).unwrap()).collect()
        }

        fn ring(self: &Arc<Files>) -> Keyring {
            Keyring::made(Algorithm::Es256, self.read(), Some(self.clone()), Vec::new()).unwrap()
        }
    }

    fn days(days: i64) -> SignedDuration {
        SignedDuration::from_hours(days * 24)
    }

    #[tokio::test]
    async fn a_new_key_signs_after_it_was_published_and_the_old_one_verifies_until_its_tokens_are_over() {
        let files = Arc::new(Files::default());
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let ring = files.ring();
        ring.rotate(start).await.unwrap();
        assert!(files.read().is_empty(), "no key before it is needed");
        let first = ring.sign(&"first", Some(start + days(1)), start).await.unwrap();
        let is_good = |ring: &Keyring, token: &str| ring.verifies(&jws::Jws::parse(token).unwrap());
        // A restart finds the key again.
        let ring = files.ring();
        assert!(is_good(&ring, &first));

        let later = start + days(90);
        ring.rotate(later).await.unwrap();
        assert_eq!(ring.verifying().len(), 2);
        let old = ring.signing_key(Some(later), later).await.unwrap();
        assert_eq!(Some(old.public()), ring.verifying().last(), "the new key is published before it signs");
        let later = later + PUBLISH_BEFORE;
        let new = ring.signing_key(Some(later), later).await.unwrap();
        assert_ne!(old.public(), new.public());
        assert!(is_good(&ring, &first));

        ring.rotate(start + days(170)).await.unwrap();
        assert_eq!(files.read().len(), 2);
        ring.rotate(start + NEEDED_FOR + days(1)).await.unwrap();
        assert!(!is_good(&ring, &first) && !is_good(&files.ring(), &first));
    }

    #[tokio::test]
    async fn a_key_stays_for_as_long_as_any_server_needs_it() {
        let files = Arc::new(Files::default());
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let ring = files.ring();
        let first = ring.sign(&"first", Some(now + days(1)), now).await.unwrap();
        let own = files.read().remove(0);
        // Another server has signed a token with it that lives longer, and its record comes before an older one of ours.
        ring.add_made(StoredKey { needed_until: Some(now + days(4000)), ..own.clone() });
        ring.add_made(own.clone());
        ring.rotate(now + days(91)).await.unwrap();
        ring.rotate(now + NEEDED_FOR + days(1)).await.unwrap();
        assert!(ring.verifies(&jws::Jws::parse(&first).unwrap()));
        ring.rotate(now + days(4001)).await.unwrap();
        assert!(!ring.verifies(&jws::Jws::parse(&first).unwrap()));
        // A key that was removed from the store verifies nothing.
        ring.add_made(own.clone());
        ring.remove_made(&own);
        assert!(!ring.verifies(&jws::Jws::parse(&first).unwrap()));
    }

    #[tokio::test]
    async fn a_token_that_outlives_its_key_is_recorded_before_it_is_handed_out() {
        let files = Arc::new(Files::default());
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let ring = files.ring();
        ring.sign(&"short", Some(now + days(1)), now).await.unwrap();
        assert_eq!(files.read()[0].needed_until, Some(now + NEEDED_FOR));
        let end = now + days(3000);
        let long = ring.sign(&"long", Some(end), now).await.unwrap();
        assert_eq!(files.read()[0].needed_until, Some(end + LEEWAY));
        ring.sign(&"endless", None, now).await.unwrap();
        assert_eq!(files.read()[0].needed_until, None);
        for day in [91, 182, 4000] {
            ring.rotate(now + days(day)).await.unwrap();
        }
        assert!(ring.verifies(&jws::Jws::parse(&long).unwrap()));
    }

    #[tokio::test]
    async fn requests_at_once_make_one_key() {
        let files = Arc::new(Files::default());
        let ring = files.ring();
        let now = Timestamp::now();
        let all = futures::future::join_all((0..20).map(|_| ring.signing_key(Some(now), now))).await;
        assert_eq!(files.read().len(), 1);
        assert!(all.iter().all(|key| key.as_ref().unwrap().public() == all[0].as_ref().unwrap().public()));
    }

    #[test]
    fn a_damaged_file_says_what_is_missing() {
        let why = |text: &str| StoredKey::parse(text).unwrap_err().to_string();
        assert_eq!(why("x"), "its line 1 is not `created: TIME`");
        assert_eq!(why("created: 2026-01-01T00:00:00Z\n"), "its line 2 is not `needed-until: TIME`");
        assert!(why("created: 2026-01-01T00:00:00Z\nneeded-until: forever\n").starts_with("there is no PEM block"));
    }
}
