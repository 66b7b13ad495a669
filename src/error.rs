//! What a person must be told: one full sentence in their terms, with what to do.

use std::io;

/// An error for the person at the terminal or in the chat.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct UserError {
    /// One full sentence, with what to do.
    pub message: String,
    /// The process's exit code: 1 failed, 2 usage, 78 unusable configuration.
    pub exit_code: u8,
}

impl UserError {
    /// It did not work.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit_code: 1 }
    }

    /// A file cannot be written. A full disk may have room at the next start; everything else is for a person to change.
    pub fn unwritable(error: &io::Error, message: impl Into<String>) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::failed(message),
            _ => Self::config(message),
        }
    }

    /// The configuration cannot be used (`EX_CONFIG`).
    pub fn config(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit_code: 78 }
    }
}
