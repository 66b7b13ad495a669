//! The store in a Postgres database, the same schema and statements as in a file.

#[path = "sql/database.rs"]
#[expect(clippy::duplicate_mod, reason = "compiled once for each database, so that every statement is written once")]
mod database;
mod driver;

use url::Url;

use self::database::{Database, migrations};
use self::driver::Place;
use super::StoreError;
use crate::clock::Clock;

/// Opens the database for the one process that owns it, and makes the tables when there are none.
pub(super) async fn open(url: &Url, clock: Clock) -> Result<Database, StoreError> {
    Database::open(Place::of(url)?, clock).await
}

/// Opens the database for listing; an empty listing when hookgate has no tables there.
pub(super) async fn open_read_only(url: &Url) -> Result<Database, StoreError> {
    let place = Place::of(url)?;
    // Not through the pool, which would not tell why it gave up.
    let version = version(&place).await.map_err(|error| place.explain(&error))?;
    let readers = migrations::is_readable(&place, version)?.then(|| place.readers());
    Ok(Database::reading(place, readers))
}

async fn version(place: &Place) -> Result<i64, sqlx::Error> {
    let mut conn = place.connect_reader().await?;
    let version = migrations::version(&mut conn).await?;
    driver::close(conn).await;
    Ok(version)
}
