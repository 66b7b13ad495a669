//! Keeps the database within age and size. Works in small transactions between those of others, so nobody waits long.
//! Freed pages are written again; when more than a quarter of the file is free, the rest is given back.

use super::queries::deliveries::KNOWN_FOR;
use super::queries::retention::{self as queries, Kind};
use super::{Database, driver};
use crate::store::StoreError;

const DAY: i64 = 24 * 60 * 60 * 1000;
/// How long what was used up in a day is kept: longer than any limit counts, in milliseconds.
const SPENDING: i64 = 40 * DAY;
/// Rows this close in age count as equally old when the size decides: one hour, in milliseconds.
const GRAIN: i64 = 60 * 60 * 1000;

/// What is deleted for its size, oldest first.
const FINISHED: [Kind; 4] = [Kind::Inbox, Kind::Outbox, Kind::Deliveries, Kind::EndedSessions];

/// See [`Store::retain`](crate::store::Store::retain). Sessions go as a whole once they were not used for `days`. For
/// its size a file gives up finished rows, and when those are gone and it is still too large, the oldest remembered
/// messages. A server's tables do not shrink when rows go, so there the size is only told.
pub(super) async fn retain(store: &Database, days: u32, max_bytes: u64) -> Result<u64, StoreError> {
    // A clock that jumped ahead must not make everything old: time is at most that of the newest row.
    let newest = store.read(async |conn| queries::newest_stored(conn).await).await?.flatten();
    let now = store.now().min(newest.unwrap_or(i64::MAX));
    let by_age = now.saturating_sub(i64::from(days) * DAY);
    let by_delivery = now.saturating_sub(KNOWN_FOR);
    let mut went = 0;
    for (kind, before) in [
        (Kind::Inbox, by_age),
        (Kind::Outbox, by_age),
        (Kind::Deliveries, by_delivery),
        (Kind::LostDeliveries, by_age.min(by_delivery)),
        (Kind::Sessions, by_age),
        (Kind::Spending, now.saturating_sub(SPENDING)),
    ] {
        loop {
            let gone = delete(store, kind, before).await?;
            went += gone;
            if gone == 0 {
                break;
            }
        }
    }
    went += shrink(store, max_bytes).await?;
    while store.write((), |tx, nothing| Box::pin(queries::give_back(tx, nothing))).await? {}
    Ok(went)
}

/// Deletes the oldest finished rows until the database is small enough or nothing is left to delete.
async fn shrink(store: &Database, max_bytes: u64) -> Result<u64, StoreError> {
    let mut went = 0;
    loop {
        let used = store.read(async |conn| Ok(driver::used_bytes(conn).await?)).await?.unwrap_or(0);
        if used <= max_bytes {
            return Ok(went);
        }
        if !driver::DELETES_FOR_SIZE {
            tracing::warn!(
                used,
                max_bytes,
                "The database is larger than storage.max_gb. On a server only storage.retention_days bounds it; lower that."
            );
            return Ok(went);
        }
        let mut oldest: Option<(i64, Kind)> = None;
        for kind in FINISHED {
            let at = store.read(async move |conn| queries::oldest(conn, kind).await).await?.flatten();
            if let Some(at) = at
                && oldest.is_none_or(|(found, _)| at < found)
            {
                oldest = Some((at, kind));
            }
        }
        let gone = match oldest {
            Some((at, kind)) => delete(store, kind, at.saturating_add(GRAIN)).await?,
            None => delete(store, Kind::Messages, i64::MAX).await?,
        };
        if gone == 0 {
            return Ok(went);
        }
        went += gone;
    }
}

async fn delete(store: &Database, kind: Kind, before: i64) -> Result<u64, StoreError> {
    store.write((kind, before), |tx, args| Box::pin(queries::delete(tx, args))).await
}
