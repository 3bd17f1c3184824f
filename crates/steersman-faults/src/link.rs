//! A relay of TCP connections to one address, which can be cut or go silent.

use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The behavior of a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Mode {
    /// Connections are closed, and new ones are closed at once.
    Cut,
    /// Bytes go in both directions.
    Open,
    /// Connections stay, and nothing goes through: half-open, as when a cable is pulled.
    Silent,
    /// Bytes go to the target, and nothing comes back.
    SilentBack,
}

/// A relay. Its connections end when it is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) address: SocketAddr,
    mode: watch::Sender<Mode>,
    _tasks: Arc<Mutex<JoinSet<()>>>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Direction {
    Back,
    There,
}

impl Link {
    /// Listens on loopback for connections to `target`.
    pub(crate) async fn to(target: SocketAddr) -> anyhow::Result<Link> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (mode, modes) = watch::channel(Mode::Open);
        let tasks: Arc<Mutex<JoinSet<()>>> = Arc::default();
        let of_connections = Arc::downgrade(&tasks);
        tasks.lock().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Some(tasks) = of_connections.upgrade() else { return };
                if *modes.borrow() != Mode::Cut {
                    tasks.lock().spawn(relay(client, target, modes.clone()));
                }
            }
        });
        Ok(Link { address, mode, _tasks: tasks })
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

async fn relay(client: TcpStream, target: SocketAddr, modes: watch::Receiver<Mode>) {
    let Ok(server) = TcpStream::connect(target).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let mut cut = modes.clone();
    // When one direction ends, both do: dropping the halves closes the sockets.
    tokio::select! {
        () = copy(from_client, to_server, modes.clone(), Direction::There) => {}
        () = copy(from_server, to_client, modes.clone(), Direction::Back) => {}
        _ = cut.wait_for(|mode| *mode == Mode::Cut) => {}
    }
}

/// Copies until either side closes. While the link is silent, nothing is read.
async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut modes: watch::Receiver<Mode>, direction: Direction) {
    let mut buffer = vec![0_u8; 64 * 1024];
    loop {
        let passes = |mode: &Mode| match mode {
            Mode::Cut | Mode::Open => true,
            Mode::Silent => false,
            Mode::SilentBack => direction == Direction::There,
        };
        if modes.wait_for(passes).await.is_err() {
            return;
        }
        match from.read(&mut buffer).await {
            Ok(length) if 0 < length => {
                // Bytes that were read just before the link went silent wait too.
                if modes.wait_for(passes).await.is_err() || to.write_all(&buffer[..length]).await.is_err() {
                    return;
                }
            }
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn a_link_passes_bytes_goes_silent_and_is_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let link = Link::to(listener.local_addr().unwrap()).await.unwrap();
        let mut client = TcpStream::connect(link.address).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let mut byte = [0; 1];
        client.write_all(b"a").await.unwrap();
        server.read_exact(&mut byte).await.unwrap();
        link.set(Mode::SilentBack);
        client.write_all(b"b").await.unwrap();
        server.read_exact(&mut byte).await.unwrap();
        server.write_all(b"c").await.unwrap();
        assert!(timeout(Duration::from_millis(50), client.read_exact(&mut byte)).await.is_err());
        link.set(Mode::Open);
        client.read_exact(&mut byte).await.unwrap();
        assert_eq!(&byte, b"c");
        link.set(Mode::Cut);
        assert_eq!(client.read(&mut byte).await.unwrap_or(0), 0);
        let mut refused = TcpStream::connect(link.address).await.unwrap();
        assert_eq!(refused.read(&mut byte).await.unwrap_or(0), 0);
    }
}
