//! Calls of the KMS v2 API over a unix socket.

use crate::kms::proto::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, EncryptedObject, StatusRequest, StatusResponse,
};
use bytes::Bytes;
use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;
use uuid::Uuid;

/// The pause before another attempt to reach a plugin that is not there.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Client {
    channel: Channel,
    socket: String,
    timeout: Duration,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("it has decrypted something that is no key")]
    Key,
    #[error("{0}")]
    Refused(String),
    #[error("nothing answers at {socket} within {milliseconds} ms{why}")]
    Silent { socket: String, milliseconds: u128, why: String },
}

impl CallError {
    /// Whether another call would not be answered either.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, CallError::Silent { .. })
    }
}

impl Client {
    /// Connects when it is first used, and again when the connection breaks.
    pub(crate) fn new(socket: &str, timeout: Duration) -> Client {
        // A name in the abstract namespace begins with a zero byte where the endpoint has an `@`.
        let path = match socket.strip_prefix('@') {
            Some(name) => format!("\0{name}"),
            None => socket.to_owned(),
        };
        let connect = service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The name is upstream's authority; nothing is resolved.
        let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(connect);
        Client { channel, socket: socket.to_owned(), timeout }
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) async fn status(&self) -> Result<StatusResponse, CallError> {
        self.call("/v2.KeyManagementService/Status", StatusRequest {}).await
    }

    pub(crate) async fn encrypt(&self, plaintext: &[u8]) -> Result<EncryptResponse, CallError> {
        let request = EncryptRequest { plaintext: Bytes::copy_from_slice(plaintext), uid: Uuid::new_v4().to_string() };
        self.call("/v2.KeyManagementService/Encrypt", request).await
    }

    /// Decrypts the key of an envelope.
    pub(crate) async fn decrypt(&self, envelope: EncryptedObject) -> Result<Bytes, CallError> {
        let EncryptedObject { encrypted_dek_source, key_id, annotations, .. } = envelope;
        let uid = Uuid::new_v4().to_string();
        let request = DecryptRequest { ciphertext: encrypted_dek_source, uid, key_id, annotations };
        let answer: DecryptResponse = self.call("/v2.KeyManagementService/Decrypt", request).await?;
        Ok(answer.plaintext)
    }

    /// One call. While nothing listens at the socket it is tried again, until the timeout.
    async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, CallError>
    where
        Q: prost::Message + Clone + Default + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut why = String::new();
        let attempts = async {
            loop {
                match self.attempt(path, request.clone()).await {
                    Err(status) if status.code() == Code::Unavailable => {
                        why = format!(": {}", status.message());
                        sleep(AGAIN_AFTER).await;
                    }
                    outcome => return outcome,
                }
            }
        };
        match timeout(self.timeout, attempts).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(status)) => {
                Err(CallError::Refused(format!("{path} failed with {:?}: {}", status.code(), status.message())))
            }
            Err(_) => {
                Err(CallError::Silent { socket: self.socket.clone(), milliseconds: self.timeout.as_millis(), why })
            }
        }
    }

    async fn attempt<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: prost::Message + Clone + Default + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        let unavailable = |error: tonic::transport::Error| Status::unavailable(causes(&error));
        grpc.ready().await.map_err(unavailable)?;
        let mut request = Request::new(request);
        request.set_timeout(self.timeout);
        let answer = grpc.unary(request, PathAndQuery::from_static(path), ProstCodec::default()).await?;
        Ok(answer.into_inner())
    }
}

/// An error with its causes, on one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
