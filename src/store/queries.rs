//! The statements, a file per table. Plain SQL that SQLite and Postgres both read: numbered parameters, `returning`,
//! `on conflict`, partial indexes, bigint times. What a row means is told in `store.rs`; nothing here waits or retries.

pub(super) mod deliveries;
pub(super) mod inbox;
pub(super) mod outbox;
pub(super) mod retention;
pub(super) mod sessions;
pub(super) mod status;

use super::driver::{Conn, Db, Row};
use super::writer::Tx;
use super::{Failure, driver};

type Result<T> = std::result::Result<T, Failure>;
