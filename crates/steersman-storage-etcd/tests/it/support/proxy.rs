//! A TCP forwarder in front of a member, which can lose what one side says.

use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The way in which the proxy loses bytes. A connection that lost some is closed when nothing is lost any more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Loss {
    Answers,
    Nothing,
    Requests,
}

pub(crate) struct Proxy {
    loss: watch::Sender<Loss>,
    task: JoinHandle<()>,
    pub(crate) url: String,
}

impl Proxy {
    /// In front of the member with this URL.
    pub(crate) async fn start(url: &str) -> Proxy {
        let target: SocketAddr = url.strip_prefix("http://").unwrap().parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let loss = watch::Sender::new(Loss::Nothing);
        let receiver = loss.subscribe();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // Dropped, and so closed, if the member is away.
                let Ok(server) = TcpStream::connect(target).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(forward(from_client, to_server, receiver.clone(), Loss::Requests));
                tokio::spawn(forward(from_server, to_client, receiver.clone(), Loss::Answers));
            }
        });
        Proxy { loss, task, url }
    }

    pub(crate) fn lose(&self, loss: Loss) {
        self.loss.send_replace(loss);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Forwards until one side ends, or until something was lost and nothing is lost any more.
async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut loss: watch::Receiver<Loss>, own: Loss) {
    let mut buffer = vec![0; 64 * 1024];
    let mut has_lost = false;
    loop {
        let n_read = tokio::select! {
            read = from.read(&mut buffer) => match read {
                Ok(n_read) if 0 < n_read => n_read,
                _ => return,
            },
            changed = loss.wait_for(|loss| has_lost && *loss == Loss::Nothing) => {
                drop(changed);
                return;
            }
        };
        let is_lost = *loss.borrow() == own;
        has_lost |= is_lost;
        if !is_lost && !has_lost && to.write_all(&buffer[..n_read]).await.is_err() {
            return;
        }
    }
}
