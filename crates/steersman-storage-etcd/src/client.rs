//! Calls to etcd: to which member, as whom, how long, and whether the data are still those that were seen.

mod call;
mod endpoints;
pub(crate) mod failure;
mod member;
mod patience;

use crate::client::call::{Call, Order};
use crate::client::endpoints::Endpoints;
use crate::client::failure::{Away, Failure, NO_SPACE_REMEDY, NoTurn, OutOfTime, Refusal, Silent};
use crate::client::member::Member;
use crate::client::patience::Patience;
use crate::options::Options;
use crate::proto::{AuthenticateRequest, ResponseHeader, WatchRequest, WatchResponse, revision_of};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http::uri::PathAndQuery;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use steersman_machinery::Revision;
use steersman_storage::kv;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

pub(crate) use crate::client::member::Lane;

/// The largest message that is read. Pages of a list are far smaller, a fragment of a watch is at most as large as etcd's
/// `--max-request-bytes` and 512 KiB.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The pause after all members have failed.
const PAUSE: Duration = Duration::from_millis(100);
/// Commands of one watch that are not sent yet.
const COMMANDS_MAX: usize = 4;
const WATCH_PATH: &str = "/etcdserverpb.Watch/Watch";

/// Both directions of a watch.
pub(crate) struct Stream {
    pub(crate) answers: Streaming<WatchResponse>,
    pub(crate) commands: mpsc::Sender<WatchRequest>,
    pub(crate) member: usize,
    /// The token that it was begun with.
    pub(crate) token: Option<Token>,
}

/// Says who calls, in a header.
pub(crate) type Token = MetadataValue<Ascii>;

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) options: Options,
    /// Known after the first answer.
    cluster_id: OnceLock<u64>,
    endpoints: Mutex<Endpoints>,
    members: Vec<Member>,
    patience: Patience,
    /// History up to this revision is gone, as far as is known.
    oldest: AtomicU64,
    /// Set once the data are others than those that were seen.
    replaced: OnceLock<String>,
    /// The newest revision of any answer.
    seen: AtomicU64,
    /// Held while a token is asked for, which costs etcd much.
    logging_in: tokio::sync::Mutex<()>,
    token: Mutex<Option<Token>>,
    /// The newest revision that somebody waits for a watch to reach.
    wanted: watch::Sender<Revision>,
}

impl Client {
    /// `options.endpoints` is not empty.
    pub(crate) fn new(options: Options) -> Result<Client, (String, tonic::transport::Error)> {
        let member = |url: &String| Member::new(url, &options).map_err(|error| (url.clone(), error));
        let members = options.endpoints.iter().map(member).collect::<Result<Vec<_>, _>>()?;
        Ok(Client {
            cluster_id: OnceLock::new(),
            endpoints: Mutex::new(Endpoints::new(members.len())),
            members,
            patience: Patience::new(options.read_timeout, options.write_timeout),
            oldest: AtomicU64::new(0),
            options,
            replaced: OnceLock::new(),
            seen: AtomicU64::new(0),
            logging_in: tokio::sync::Mutex::default(),
            token: Mutex::new(None),
            wanted: watch::Sender::new(Revision::ZERO),
        })
    }

    pub(crate) fn endpoint(&self, member: usize) -> &str {
        &self.members[member].endpoint
    }

    /// The time at which an operation that begins now must end.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.options.request_timeout
    }

    pub(crate) fn pick(&self) -> usize {
        self.endpoints.lock().pick(Instant::now())
    }

    pub(crate) fn answered(&self, member: usize) {
        self.endpoints.lock().answered(member);
    }

    pub(crate) fn failed(&self, member: usize) {
        self.endpoints.lock().failed(member, Instant::now());
    }

    /// The newest revision of any answer so far.
    pub(crate) fn seen(&self) -> Revision {
        Revision(self.seen.load(Ordering::Acquire))
    }

    /// Records a revision that exists.
    pub(crate) fn note_seen(&self, revision: Revision) {
        self.seen.fetch_max(revision.0, Ordering::AcqRel);
    }

    /// The oldest revision after which history is kept, as far as is known.
    pub(crate) fn oldest(&self) -> Revision {
        Revision(self.oldest.load(Ordering::Acquire))
    }

    /// Records that history up to a revision is gone.
    pub(crate) fn note_oldest(&self, oldest: Revision) {
        self.oldest.fetch_max(oldest.0, Ordering::AcqRel);
    }

    /// Tells watches to ask for progress until they reach a revision.
    pub(crate) fn want(&self, revision: Revision) {
        self.wanted.send_if_modified(|wanted| {
            let is_later = *wanted < revision;
            *wanted = revision.max(*wanted);
            is_later
        });
    }

    pub(crate) fn wanted(&self) -> watch::Receiver<Revision> {
        self.wanted.subscribe()
    }

    /// Fails while no member has answered for a while.
    pub(crate) fn reachable(&self) -> Result<(), Failure> {
        match self.endpoints.lock().away(Instant::now()) {
            Some(silence) => Err(Failure::NotDone(Arc::new(Away { seconds: silence.as_secs() }))),
            None => Ok(()),
        }
    }

    /// Fails once the data were replaced.
    pub(crate) fn health(&self) -> Result<(), Failure> {
        self.replaced.get().map_or(Ok(()), |fault| Err(Failure::Replaced(fault.clone())))
    }

    /// Reads: asks one member, then all of them, until one answers or the time is over.
    pub(crate) async fn read<C: Call>(&self, lane: Lane, request: &C, give_up: Instant) -> Result<C::Answer, Failure> {
        let at_most = if lane == Lane::Bulk { self.options.write_timeout } else { self.options.read_timeout };
        let mut n_failures = 0;
        loop {
            // A long answer is not asked for several times.
            let answer = match (n_failures, lane) {
                (0, _) | (_, Lane::Bulk) => self.attempt(lane, request, at_most, give_up).await,
                _ => self.attempt_all(lane, request, at_most, give_up).await,
            };
            match answer {
                Err(failure @ (Failure::NotDone(_) | Failure::Unknown(_))) => {
                    n_failures += 1;
                    self.pause_after(n_failures).await;
                    if give_up <= Instant::now() {
                        return Err(failure);
                    }
                }
                answer => return answer,
            }
        }
    }

    /// Waits a little if all members have failed once more.
    pub(crate) async fn pause_after(&self, n_failures: usize) {
        if n_failures.is_multiple_of(self.members.len()) {
            sleep(PAUSE).await;
        }
    }

    /// Writes at the member that answers best, once.
    pub(crate) async fn write<C: Call>(&self, request: &C, give_up: Instant) -> Result<C::Answer, Failure> {
        let (at_most, begun) = (self.patience.now(), Instant::now());
        let answer = self.attempt(Lane::Requests, request, at_most, give_up).await;
        match &answer {
            Err(Failure::Unknown(_)) if at_most <= begun.elapsed() => self.patience.missed(at_most),
            Err(Failure::NotDone(_) | Failure::Unknown(_)) => {}
            Ok(_) | Err(_) => self.patience.answered(begun.elapsed()),
        }
        answer
    }

    /// Asks the member that answers best, once.
    pub(crate) async fn attempt<C: Call>(
        &self,
        lane: Lane,
        request: &C,
        at_most: Duration,
        give_up: Instant,
    ) -> Result<C::Answer, Failure> {
        let member = self.pick();
        let at_most = at_most.min(give_up.saturating_duration_since(Instant::now()));
        if at_most.is_zero() {
            let endpoint = self.endpoint(member).to_owned();
            return Err(Failure::NotDone(Arc::new(OutOfTime { endpoint })));
        }
        let answer = self.ask(member, lane, request, at_most).await;
        let mut endpoints = self.endpoints.lock();
        match &answer {
            Err(Failure::NotDone(cause) | Failure::Unknown(cause)) => {
                tracing::debug!(endpoint = self.endpoint(member), call = C::PATH, "etcd has not done a call: {cause}");
                endpoints.failed(member, Instant::now());
            }
            _ => endpoints.answered(member),
        }
        drop(endpoints);
        answer
    }

    /// Asks all members at the same time, once, and waits a little if all of them fail. The one that answers first is asked next, since it
    /// has a leader. For what does no harm when it is done several times.
    pub(crate) async fn attempt_all<C: Call>(
        &self,
        lane: Lane,
        request: &C,
        at_most: Duration,
        give_up: Instant,
    ) -> Result<C::Answer, Failure> {
        let at_most = at_most.min(give_up.saturating_duration_since(Instant::now()));
        let ask = |member| async move { (member, self.ask(member, lane, request, at_most).await) };
        let mut asked: FuturesUnordered<_> = (0..self.members.len()).map(ask).collect();
        let mut last = None;
        while let Some((member, answer)) = asked.next().await {
            let mut endpoints = self.endpoints.lock();
            match answer {
                Err(failure @ (Failure::NotDone(_) | Failure::Unknown(_))) => {
                    endpoints.failed(member, Instant::now());
                    last = Some(failure);
                }
                answer => {
                    endpoints.answered(member);
                    endpoints.prefer(member);
                    return answer;
                }
            }
        }
        sleep(PAUSE).await;
        let silent = || {
            let endpoint = self.endpoint(self.pick()).to_owned();
            Failure::NotDone(Arc::new(Silent { endpoint, milliseconds: at_most.as_millis() }))
        };
        Err(last.unwrap_or_else(silent))
    }

    /// Asks one member, once; with another token if the one that was used is not accepted.
    pub(crate) async fn ask<C: Call>(
        &self,
        member: usize,
        lane: Lane,
        request: &C,
        at_most: Duration,
    ) -> Result<C::Answer, Failure> {
        self.health()?;
        let give_up = Instant::now() + at_most;
        let (mut token, is_new) = self.token(member, at_most).await?;
        let mut answer = self.send(member, lane, request, token.clone(), at_most).await;
        if matches!(answer, Err(Failure::Refused(Refusal::Token))) && self.options.login.is_some() && !is_new {
            self.forget_token(token.as_ref());
            let at_most = give_up.saturating_duration_since(Instant::now());
            (token, _) = self.token(member, at_most).await?;
            let at_most = give_up.saturating_duration_since(Instant::now());
            answer = self.send(member, lane, request, token.clone(), at_most).await;
        }
        match answer {
            // The password was right, so this is a member that has just started and does not know its own tokens yet.
            Err(failure @ Failure::Refused(Refusal::Token)) if self.options.login.is_some() => {
                self.forget_token(token.as_ref());
                Err(Failure::NotDone(failure.cause()))
            }
            answer => answer,
        }
    }

    /// The token of the user, if there is one, and whether it was given just now.
    async fn token(&self, member: usize, at_most: Duration) -> Result<(Option<Token>, bool), Failure> {
        let Some(login) = &self.options.login else { return Ok((None, false)) };
        if let Some(held) = self.held_token() {
            return Ok((Some(held), false));
        }
        let give_up = Instant::now() + at_most;
        let Ok(_logging_in) = timeout(at_most, self.logging_in.lock()).await else {
            return Err(Failure::NotDone(Arc::new(NoTurn("a token of the user"))));
        };
        // Another call may have got one meanwhile.
        if let Some(held) = self.held_token() {
            return Ok((Some(held), false));
        }
        let at_most = give_up.saturating_duration_since(Instant::now());
        let request = AuthenticateRequest { name: login.user.clone(), password: login.password.clone() };
        // Nothing was done for the caller yet.
        let not_done = |failure| match failure {
            Failure::Unknown(cause) => Failure::NotDone(cause),
            failure => failure,
        };
        let answer = self.send(member, Lane::Requests, &request, None, at_most).await.map_err(not_done)?;
        let token = MetadataValue::try_from(answer.token)
            .map_err(|_| Failure::NotDone(Arc::new(Status::internal("etcd's token is no header"))))?;
        *self.token.lock() = Some(token.clone());
        Ok((Some(token), true))
    }

    fn held_token(&self) -> Option<Token> {
        self.token.lock().clone()
    }

    async fn send<C: Call>(
        &self,
        member: usize,
        lane: Lane,
        request: &C,
        token: Option<Token>,
        at_most: Duration,
    ) -> Result<C::Answer, Failure> {
        let Member { endpoint, .. } = &self.members[member];
        let channel = self.members[member].channel(lane);
        let seen = self.seen();
        let mut request = with_metadata(Request::new(request.clone()), token);
        request.set_timeout(at_most);
        let answer = timeout(at_most, async {
            let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
            grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
            grpc.unary(request, PathAndQuery::from_static(C::PATH), ProstCodec::default()).await
        });
        let answer: C::Answer = match answer.await {
            Ok(Ok(answer)) => answer.into_inner(),
            Ok(Err(status)) => return Err(Failure::of(&status, endpoint)),
            Err(_) => {
                let milliseconds = at_most.as_millis();
                return Err(Failure::Unknown(Arc::new(Silent { endpoint: endpoint.clone(), milliseconds })));
            }
        };
        if let Some(header) = C::header(&answer) {
            self.examine(header, C::ORDER, seen)?;
        }
        Ok(answer)
    }

    /// Compares an answer with what was seen before its request.
    fn examine(&self, header: ResponseHeader, order: Order, seen: Revision) -> Result<(), Failure> {
        let ResponseHeader { cluster_id, revision } = header;
        let revision = revision_of(revision);
        let known = *self.cluster_id.get_or_init(|| cluster_id);
        let fault = if known != cluster_id {
            format!("etcd is cluster {cluster_id:x} and was {known:x}")
        } else if order == Order::Linearizable && revision < seen {
            format!("etcd is at revision {revision} and was at {seen}: was it restored from a snapshot?")
        } else {
            if order == Order::Linearizable {
                self.note_seen(revision);
            }
            return Ok(());
        };
        Err(Failure::Replaced(self.replace(fault)))
    }

    /// Ends everything, because of a fault. Returns the first one.
    pub(crate) fn replace(&self, fault: String) -> String {
        let fault = self.replaced.get_or_init(|| {
            tracing::error!("nothing more is read or written: {fault}");
            fault
        });
        fault.clone()
    }

    /// Begins a watch at one member.
    pub(crate) async fn watch(&self, member: usize, create: WatchRequest) -> Result<Stream, Failure> {
        self.health()?;
        let at_most = self.options.read_timeout;
        let Member { endpoint, .. } = &self.members[member];
        let channel = self.members[member].channel(Lane::Watches);
        let (token, _) = self.token(member, at_most).await?;
        let (commands, mut waiting) = mpsc::channel(COMMANDS_MAX);
        // The channel is empty, so there is room.
        let _sent = commands.try_send(create);
        let requests = futures::stream::poll_fn(move |context| waiting.poll_recv(context));
        let request = with_metadata(Request::new(requests), token.clone());
        let begun = timeout(at_most, async {
            let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
            grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
            grpc.streaming(request, PathAndQuery::from_static(WATCH_PATH), ProstCodec::default()).await
        });
        match begun.await {
            Ok(Ok(answers)) => Ok(Stream { answers: answers.into_inner(), commands, member, token }),
            Ok(Err(status)) => Err(self.refused_watch(&status, endpoint, token.as_ref())),
            Err(_) => {
                let milliseconds = at_most.as_millis();
                Err(Failure::NotDone(Arc::new(Silent { endpoint: endpoint.clone(), milliseconds })))
            }
        }
    }

    /// The meaning of the end of a watch's stream.
    pub(crate) fn watch_failure(&self, status: &Status, stream: &Stream) -> Failure {
        self.refused_watch(status, self.endpoint(stream.member), stream.token.as_ref())
    }

    fn refused_watch(&self, status: &Status, endpoint: &str, token: Option<&Token>) -> Failure {
        let failure = Failure::of(status, endpoint);
        if matches!(failure, Failure::Refused(Refusal::Token)) {
            self.forget_token(token);
        }
        failure
    }

    /// Drops a token that etcd did not accept, so that the next call logs in again; not one that another call has got since.
    pub(crate) fn forget_token(&self, refused: Option<&Token>) {
        let mut token = self.token.lock();
        if token.as_ref() == refused {
            *token = None;
        }
    }
}

fn with_metadata<T>(mut request: Request<T>, token: Option<Token>) -> Request<T> {
    // A member that has lost its leader says so instead of waiting for one.
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    if let Some(token) = token {
        request.metadata_mut().insert("token", token);
    }
    request
}

/// The error of an operation that has done nothing.
pub(crate) fn undone(failure: &Failure) -> kv::Error {
    match failure {
        Failure::Replaced(fault) => kv::Error::Replaced { fault: fault.clone() },
        Failure::Refused(Refusal::NoSpace) => kv::Error::Full { remedy: NO_SPACE_REMEDY },
        Failure::Refused(_) => kv::Error::Refused { source: failure.cause() },
        Failure::NotDone(_) | Failure::Unknown(_) => kv::Error::Unavailable { source: failure.cause() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_token_that_another_call_has_got_since_is_kept() {
        let client = Client::new(Options::new(vec!["http://127.0.0.1:1".to_owned()])).unwrap();
        let (old, new) = (Token::from_static("old"), Token::from_static("new"));
        *client.token.lock() = Some(new.clone());
        client.forget_token(Some(&old));
        assert_eq!(client.held_token(), Some(new.clone()));
        client.forget_token(Some(&new));
        assert_eq!(client.held_token(), None);
    }
}
