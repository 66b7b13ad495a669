//! Log lines on standard error, without secrets. A thread of its own writes them: whoever reads standard error, or has
//! stopped reading it, holds up nothing but the lines, of which the newest are dropped when too many wait.

use std::sync::{Mutex, PoisonError};

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use crate::error::UserError;
use crate::redact::RedactedStderr;

/// Lines that may wait to be written.
const WAITING: usize = 10_000;

static WRITER: Mutex<Option<WorkerGuard>> = Mutex::new(None);

/// Starts logging. `filter` as for `RUST_LOG`; without one, `RUST_LOG` or `info`.
pub fn start(filter: Option<&str>, json: bool) -> Result<(), UserError> {
    let filter = match filter {
        Some(filter) => EnvFilter::try_new(filter).map_err(|error| UserError {
            message: format!("The log filter {filter:?} cannot be read: {error}. Try info, or hookgate=debug."),
            exit_code: 2,
        })?,
        None => EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")),
    };
    let (writer, guard) =
        NonBlockingBuilder::default().buffered_lines_limit(WAITING).thread_name("log").finish(RedactedStderr);
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_target(false);
    let started = if json { lines.json().try_init() } else { lines.with_ansi(false).try_init() };
    started.map_err(|error| UserError::failed(format!("Logging cannot be started: {error}.")))?;
    *WRITER.lock().unwrap_or_else(PoisonError::into_inner) = Some(guard);
    Ok(())
}

/// Writes what waits, for at most about a second. Nothing is logged afterwards.
pub fn finish() {
    drop(WRITER.lock().unwrap_or_else(PoisonError::into_inner).take());
}
