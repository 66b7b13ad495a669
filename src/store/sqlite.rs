//! The store in a file beside the configuration: the default.

#[path = "sql/database.rs"]
#[expect(clippy::duplicate_mod, reason = "compiled once for each database, so that every statement is written once")]
mod database;
mod driver;
pub mod repair;

use std::path::Path;

use self::database::{Database, migrations};
use self::driver::{Place, Pool};
use super::StoreError;
use crate::clock::Clock;

/// Opens the file, which is made when there is none and repaired when it is damaged; with what a person should know.
pub(super) async fn open(path: &str, home: &Path, clock: Clock) -> Result<(Database, Vec<String>), StoreError> {
    let place = Place::of(path, home)?;
    repair::complete(&place)?;
    place.prepare()?;
    let mut notes = Vec::new();
    if place.check_mark().exists() {
        notes.extend(repair::check(&place, &clock).await?);
    }
    match Database::open(place.clone(), clock.clone()).await {
        Err(StoreError::Damaged(why)) => {
            notes.push(repair::repair(&place, &clock, &why).await?);
            Ok((Database::open(place, clock).await?, notes))
        }
        other => Ok((other?, notes)),
    }
}

/// Opens the file for listing; an empty listing when there is none.
pub(super) async fn open_read_only(path: &str, home: &Path) -> Result<Database, StoreError> {
    let place = Place::of(path, home)?;
    if !place.exists() {
        return Ok(Database::reading(place, None));
    }
    let mut readers = place.readers();
    let mut found = version_of(&readers).await;
    if found.as_ref().is_err_and(driver::cannot_open) && place.has_no_log() {
        readers = place.settled_readers();
        found = version_of(&readers).await;
    }
    let version = found.map_err(|error| place.explain_reading(&error))?;
    let readers = migrations::is_readable(&place, version)?.then_some(readers);
    Ok(Database::reading(place, readers))
}

async fn version_of(readers: &Pool) -> Result<i64, sqlx::Error> {
    migrations::version(&mut *readers.acquire().await?).await
}
