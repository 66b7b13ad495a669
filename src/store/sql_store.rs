//! [`SqlStore`]: an opened database of either kind, chosen by its address.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;

use super::url::Address;
use super::{Store, StoreError, StoreUrl, postgres, sqlite};
use crate::clock::Clock;

/// How to open a database.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// `storage.url`; a file's path is relative to the home.
    pub url: StoreUrl,
    /// The home directory; exists.
    pub home: PathBuf,
    /// What time it is.
    pub clock: Clock,
}

impl OpenOptions {
    /// The database `url` of a home, with the system's clock.
    pub fn new(home: impl Into<PathBuf>, url: impl Into<StoreUrl>) -> Self {
        Self { url: url.into(), home: home.into(), clock: Clock::system() }
    }

    /// Another clock.
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }
}

/// An opened database.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: SqlStore,
    /// What a person should know: that the database was damaged, what was saved and where the old file lies. Sentences.
    pub notes: Vec<String>,
}

/// What can be asked of an opened database beyond [`Store`].
#[async_trait]
pub trait OpenStore: Store + std::fmt::Debug {
    /// Reads the whole database and tells whether it is sound; for `hookgate doctor`.
    async fn check(&self) -> Result<(), StoreError>;

    /// How many transactions were committed since it was opened.
    fn commits(&self) -> u64;

    /// For tests: behaves as on a full disk, with no room beyond this many pages of 4 KiB (at least what is used now);
    /// `None` makes room again. Files only.
    #[doc(hidden)]
    async fn limit_pages(&self, pages: Option<u32>) -> Result<(), StoreError>;
}

/// A [`Store`] in a database: SQLite or Postgres, as its address says.
#[derive(Debug)]
pub struct SqlStore(Arc<dyn OpenStore>);

impl SqlStore {
    /// Opens the database for the one process that owns it, makes what it needs, and brings its schema up to date. A
    /// file that is damaged is repaired (see [`Opened::notes`]). Needs a running tokio runtime.
    ///
    /// [`StoreError::Unusable`] for what a person must change, [`StoreError::Unavailable`] when another process owns the
    /// database, or the server is away or the disk full.
    pub async fn open(options: OpenOptions) -> Result<Opened, StoreError> {
        let OpenOptions { url, home, clock } = options;
        let (store, notes): (Arc<dyn OpenStore>, _) = match url.address()? {
            Address::Sqlite(path) => {
                let (database, notes) = sqlite::open(path, &home, clock).await?;
                (Arc::new(database), notes)
            }
            Address::Postgres(url) => (Arc::new(postgres::open(&url, clock).await?), Vec::new()),
        };
        Ok(Opened { store: Self(store), notes })
    }

    /// Opens the database for listing, also beside a running gateway: it writes nothing and takes no lock. Where there is
    /// no database, every listing is empty.
    pub async fn open_read_only(home: &Path, url: impl Into<StoreUrl>) -> Result<Self, StoreError> {
        let store: Arc<dyn OpenStore> = match url.into().address()? {
            Address::Sqlite(path) => Arc::new(sqlite::open_read_only(path, home).await?),
            Address::Postgres(url) => Arc::new(postgres::open_read_only(&url).await?),
        };
        Ok(Self(store))
    }
}

impl Deref for SqlStore {
    type Target = dyn OpenStore;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl From<SqlStore> for Arc<dyn Store> {
    fn from(store: SqlStore) -> Self {
        store.0
    }
}
