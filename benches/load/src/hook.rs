//! An admission webhook in this process that allows every request, over plain HTTP on loopback.

use std::net::SocketAddr;

use anyhow::Context;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The Service of the webhook.
pub(crate) const NAMESPACE: &str = "bench";
pub(crate) const NAME: &str = "hook";

/// Listens, and answers for as long as the process runs.
pub(crate) async fn start() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for a webhook")?;
    let address = listener.local_addr().context("the webhook's port is unknown")?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // If a connection breaks, the server opens a new one.
            tokio::spawn(async move { serve(stream).await.ok() });
        }
    });
    Ok(address)
}

async fn serve(mut stream: TcpStream) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut received = Vec::new();
    loop {
        while let Some((head, length)) = head(&received)? {
            let end = head + length;
            if received.len() < end {
                break;
            }
            let review: Value = serde_json::from_slice(&received[head..end]).context("a review is no JSON")?;
            received.drain(..end);
            let answer = json!({
                "apiVersion": review["apiVersion"], "kind": "AdmissionReview",
                "response": {"uid": review["request"]["uid"], "allowed": true}})
            .to_string();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                answer.len()
            );
            stream.write_all((head + &answer).as_bytes()).await?;
        }
        if stream.read_buf(&mut received).await? == 0 {
            return Ok(());
        }
    }
}

/// The lengths of a request's head and body; `None` if the head is incomplete.
fn head(received: &[u8]) -> anyhow::Result<Option<(usize, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head) = request.parse(received).context("no HTTP from the server")? else {
        return Ok(None);
    };
    let length = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|header| std::str::from_utf8(header.value).ok()?.parse().ok());
    Ok(Some((head, length.context("a review without a length")?)))
}

#[cfg(test)]
mod tests {
    use super::head;

    #[test]
    fn a_request_is_read_once_its_head_is_whole() {
        let request = b"POST /allow HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(head(&request[..20]).unwrap(), None);
        assert_eq!(head(request).unwrap(), Some((request.len() - 2, 2)));
    }
}
