//! Log lines on standard error, without secrets.

use tracing_subscriber::EnvFilter;

use crate::error::UserError;
use crate::redact::RedactedStderr;

/// Starts logging. `filter` as for `RUST_LOG`; without one, `RUST_LOG` or `info`.
pub fn start(filter: Option<&str>, json: bool) -> Result<(), UserError> {
    let filter = match filter {
        Some(filter) => EnvFilter::try_new(filter).map_err(|error| UserError {
            message: format!("The log filter {filter:?} cannot be read: {error}. Try info, or hookgate=debug."),
            exit_code: 2,
        })?,
        None => EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")),
    };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(RedactedStderr).with_target(false);
    let started = if json { lines.json().try_init() } else { lines.with_ansi(false).try_init() };
    started.map_err(|error| UserError::failed(format!("Logging cannot be started: {error}.")))
}
