//! A wire to a Postgres server that can be cut, at the moment a test chooses.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The file name of a server's socket.
const SOCKET: &str = ".s.PGSQL.5432";

/// When the wire is cut, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The server never hears the commit.
    BeforeCommit,
    /// The server has committed, and its answer is lost.
    AfterCommit,
}

/// A socket of its own through which a server is reached.
pub(crate) struct Wire {
    directory: TempDir,
    state: Arc<State>,
    listening: Mutex<Option<CancellationToken>>,
}

struct State {
    server: PathBuf,
    cut: Mutex<Option<Cut>>,
    was_cut: Notify,
}

impl Wire {
    /// To the server whose socket is in `server`.
    pub(crate) fn new(server: &Path) -> Self {
        let state = State { server: server.join(SOCKET), cut: Mutex::new(None), was_cut: Notify::new() };
        let directory = tempfile::Builder::new().prefix("wire").tempdir().unwrap();
        let wire = Self { directory, state: Arc::new(state), listening: Mutex::new(None) };
        wire.mend();
        wire
    }

    /// Where its socket is.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The next commit is the last thing that goes over the connections there are.
    pub(crate) fn cut_at(&self, cut: Cut) {
        *self.state.cut.lock().unwrap() = Some(cut);
    }

    /// Waits until it was cut.
    pub(crate) async fn was_cut(&self) {
        self.state.was_cut.notified().await;
    }

    /// Cuts all connections, and lets no new one be made.
    pub(crate) fn cut(&self) {
        if let Some(listening) = self.listening.lock().unwrap().take() {
            listening.cancel();
            std::fs::remove_file(self.directory.path().join(SOCKET)).unwrap();
        }
    }

    /// Lets new connections be made.
    pub(crate) fn mend(&self) {
        let listener = UnixListener::bind(self.directory.path().join(SOCKET)).unwrap();
        let (state, stop) = (Arc::clone(&self.state), CancellationToken::new());
        *self.listening.lock().unwrap() = Some(stop.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = UnixStream::connect(&state.server).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let broken = stop.child_token();
                let there = carry_there(Arc::clone(&state), from_client, to_server, broken.clone());
                let back = carry_back(Arc::clone(&state), from_server, to_client, broken.clone());
                tokio::spawn(broken.run_until_cancelled_owned(async { tokio::join!(there, back) }));
            }
        }));
    }
}

impl State {
    fn is_to_be_cut(&self, cut: Cut) -> bool {
        *self.cut.lock().unwrap() == Some(cut)
    }

    fn break_now(&self, broken: &CancellationToken) {
        *self.cut.lock().unwrap() = None;
        broken.cancel();
        self.was_cut.notify_one();
    }
}

async fn carry_there(state: Arc<State>, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, broken: CancellationToken) {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let count = from.read(&mut bytes).await.unwrap_or(0);
        if state.is_to_be_cut(Cut::BeforeCommit) && contains(&bytes[..count], b"; commit\0") {
            state.break_now(&broken);
        }
        if broken.is_cancelled() || count == 0 || to.write_all(&bytes[..count]).await.is_err() {
            return broken.cancel();
        }
    }
}

async fn carry_back(state: Arc<State>, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, broken: CancellationToken) {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let count = from.read(&mut bytes).await.unwrap_or(0);
        if state.is_to_be_cut(Cut::AfterCommit) && contains(&bytes[..count], b"COMMIT\0") {
            state.break_now(&broken);
        }
        if broken.is_cancelled() || count == 0 || to.write_all(&bytes[..count]).await.is_err() {
            return broken.cancel();
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
